"""A model's page: what is on it, and what a browser and a judge of accessibility make of it."""

import base64
import hashlib
import re
import sys
from pathlib import Path

import pytest
from support import chromium
from support.outcomes.examples import EXAMPLES

from auditor.formats.registry import FORMATS
from auditor.formats.text import printable
from auditor.formats.view import View

AXE = Path(sys.prefix) / "axe" / "node_modules" / "axe-core" / "axe.min.js"


def page_of(*names):
    [text] = FORMATS["html"]([EXAMPLES[name]() for name in names], View()).values()
    return text


@pytest.mark.parametrize("name", EXAMPLES)
def test_a_page_is_one_file_of_ascii_that_may_load_nothing(name):
    text = page_of(name)
    assert text.isascii()
    assert not re.search(r"<(script|link|img|iframe|object|form)\b", text)
    (style,) = re.findall(r"<style>(.*?)</style>", text, re.DOTALL)
    digest = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()
    assert f"default-src 'none'; style-src 'sha256-{digest}'" in text
    addresses = re.findall(r'href="([^"]*)"', text)
    assert all(one.startswith("https://huggingface.co/") for one in addresses)


def test_the_page_answers_before_it_tells():
    text = page_of("diagnosed")
    outcome = EXAMPLES["diagnosed"]()
    (cause,) = outcome.diagnosis
    places = [text.index(one) for one in ("ERROR", cause.cause, "Where the parameters", "Findings")]
    assert places == sorted(places)
    for key, declared, held in cause.fields:
        row = re.search(rf"<tr><th[^>]*><span><code>{key}</code></span></th>(.*?)</tr>", text)
        assert re.findall(r">([^<>]+)<", row[1])[1:] == [f"{declared}", f"{held}"]


def test_links_lead_to_the_audited_commit_and_its_files():
    outcome = EXAMPLES["every-kind"]()
    text = page_of("every-kind")
    place = f"https://huggingface.co/{outcome.model}"
    assert f'href="{place}/tree/{outcome.commit}"' in text
    for file in outcome.observed.by_file:
        assert f'href="{place}/blob/{outcome.commit}/{file.name}"' in text


def test_a_model_of_a_folder_has_no_link():
    assert "href" not in page_of("names-alone")


# --- in a browser ---------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def page(tmp_path_factory):
    if chromium.found() is None:
        pytest.skip("Chromium is not installed")
    with chromium.browser(tmp_path_factory.mktemp("profile")) as running:
        yield running


pytestmark = pytest.mark.filterwarnings("ignore")


@pytest.mark.slow
@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize("name", EXAMPLES)
def test_axe_finds_no_fault_at_any_width(name, dark, page, tmp_path):
    if not AXE.exists():
        pytest.skip("axe-core is not installed: npm")
    file = tmp_path / "page.html"
    file.write_text(page_of(name))
    for width in (390, 1280, 1920):
        page.open(file, dark=dark, width=width)
        page.do("document.querySelectorAll('details').forEach((one) => { one.open = true; })")
        assert page.do("document.documentElement.scrollWidth <= innerWidth"), width
        # The page's policy lets no script run but the debugger's own.
        page.do(AXE.read_text())
        found = page.do(
            "axe.run(document, {resultTypes: ['violations']}).then((said) => said.violations"
            ".map((one) => one.id + ': ' + one.nodes.map((node) => node.html).join(' | ')))"
        )
        assert found == [], width
    assert page.complaints == []
    assert [one for one in page.requests if not one.startswith(("file:", "data:"))] == []


@pytest.mark.slow
def test_hostile_names_are_text(page, tmp_path):
    file = tmp_path / "page.html"
    file.write_text(page_of("hostile"))
    page.open(file)
    shown = page.do("document.body.textContent")
    for finding in EXAMPLES["hostile"]().findings:
        for name in finding.names:
            if "{" not in name and "\\" not in name and len(name) < 100:
                assert printable(name).split(".")[-1] in shown
    assert page.complaints == []
