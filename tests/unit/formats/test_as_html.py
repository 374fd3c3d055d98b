"""A model's page: what is on it, and what a browser and a judge of accessibility make of it."""

import base64
import hashlib
import html
import re
from html.parser import HTMLParser
from xml.etree import ElementTree as ET

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace
from support import chromium
from support.examples import one_in
from support.outcomes.examples import EXAMPLES, HOSTILE
from support.tensor_tables import ListedTensors, tensor

from auditor.formats import View, tensor_table
from auditor.formats.markup import element, svg
from auditor.formats.markup import html as html_page
from auditor.formats.registry import FORMATS
from auditor.messages import printable
from auditor.names.folding import expand

TENSORS = ListedTensors(
    tensor("encoder.weight", 4, 6),
    tensor("bad<b>.weight", 4, file="other.safetensors"),
    tensor("lost.bias", 4, file=None),
)


def page_of(*names):
    return page_with(None, *names)


def page_with(tensors, *names):
    outcomes = [replace(EXAMPLES[name](), tensors=tensors) for name in names]
    [text] = FORMATS["html"](outcomes, View()).values()
    return text


def test_a_page_is_one_file_of_ascii_that_may_load_nothing():
    for name in EXAMPLES:
        text = page_of(name)
        assert text.isascii()
        assert not re.search(r"<(script|link|img|iframe|object|form)\b", text)
        (style,) = re.findall(r"<style>(.*?)</style>", text, re.DOTALL)
        digest = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()
        assert f"default-src 'none'; style-src 'sha256-{digest}'" in text
        addresses = re.findall(r'href="([^"]*)"', text)
        assert all(one.startswith("https://huggingface.co/") for one in addresses)


def test_links_lead_to_the_audited_commit_and_its_files():
    outcome = EXAMPLES["every-kind"]()
    text = page_of("every-kind")
    place = f"https://huggingface.co/{outcome.model}"
    assert f'href="{place}/tree/{outcome.commit}"' in text
    for file in outcome.observed.by_file:
        assert f'href="{place}/blob/{outcome.commit}/{file.name}"' in text
    assert "href" not in page_of("names-alone")  # of a folder


# --- names ---------------------------------------------------------------------------------------

TEXT = st.text(st.characters(exclude_categories=())) | st.sampled_from(
    (
        "<img src=x onerror=alert(1)>",
        "</title><script>alert(2)</script>",
        "'\"><svg>",
        "&lt;",
        "]]>",
        *HOSTILE,
    )
)


class Read(HTMLParser):
    """The tags, attributes and texts of a page, as a browser takes them."""

    def __init__(self):
        super().__init__()
        self.tags, self.attributes, self.text = [], [], ""

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.attributes += attrs

    def handle_data(self, data):
        self.text += data


@given(TEXT, TEXT, TEXT)
def test_names_are_text_and_nothing_else(before, within, after):
    page = html_page(element("p", {"title": within}, before, element("b", {}, within), after))
    assert page.isascii()
    read = Read()
    read.feed(page)
    assert read.tags == ["p", "b"]
    assert dict(read.attributes) == {"title": printable(within)}
    assert read.text.strip("\n") == "".join(map(printable, (before, within, after)))


@given(TEXT, st.floats(0, 1e6))
def test_a_drawing_is_xml_with_the_same_content(text, number):
    drawn = svg(element("svg", {"width": number, "height": None}, element("title", {}, text)))
    root = ET.fromstring(drawn)  # noqa: S314 - our own
    assert root.get("height") is None
    assert float(root.get("width")) == float(f"{number:g}")
    assert (root[0].text or "") == printable(text)


# --- the tensors ----------------------------------------------------------------------------------

CELLS = re.compile(r"<t[hd][^>]*>(.*?)</t[hd]>", re.DOTALL)


def listed(text):
    """The rows of the list, as texts."""
    section = re.search(r'<details class="tensors">(.*?)</details>', text, re.DOTALL)[1]
    rows = re.findall(r"<tr>(.*?)</tr>", section.partition("<tbody>")[2], re.DOTALL)
    return [
        [html.unescape(re.sub("<[^>]*>", "", cell)) for cell in CELLS.findall(row)] for row in rows
    ]


def test_each_tensor_has_its_shape_and_a_script_may_filter_them_and_nothing_else():
    text = page_with(TENSORS, "every-kind")
    assert listed(text) == [
        ["encoder.weight", "F32", "[4, 6]", "=", "24", "equal", "model.safetensors"],
        ["bad<b>.weight", "F32", "[4]", "=", "4", "equal", "other.safetensors"],
        ["lost.bias", "", "", "[4]", "0", "missing", ""],
    ]
    [script] = re.findall(r"<script>(.*?)</script>", text, re.DOTALL)
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    assert f"; script-src 'sha256-{digest}'; " in text
    assert '<p hidden="hidden"><label>' in text
    assert not re.search(
        r"\b(innerHTML|outerHTML|insertAdjacent|eval|fetch|document\.write)\b", script
    )


@given(
    st.sets(
        st.tuples(
            st.sampled_from(["layers", "experts"]), st.integers(0, 30), st.sampled_from("ab{")
        ),
        min_size=4,
    )
)
def test_a_long_list_is_folded_and_has_each_tensor_once(parts):
    names = sorted(f"{part}.{number}.{end}" for part, number, end in parts)
    rows = [tensor(name, 1 + len(name) % 2) for name in names]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tensor_table, "MOST_ROWS", 3)
        folded = tensor_table._folded(rows)  # noqa: SLF001 - before it is cut
    assert sorted(name for pattern, _, _ in folded for name in expand(pattern)) == names
    shapes = {row.name: row.shape for row in rows}
    for pattern, count, one in folded:
        assert len(expand(pattern)) == count
        assert {shapes[name] for name in expand(pattern)} == {one.shape}


def test_what_a_list_leaves_out_is_counted():
    names = [f"n{number}.{'ab'[number % 2] * number}" for number in range(2_500)]
    text = page_with(ListedTensors(*(tensor(name, 1) for name in names)), "every-kind")
    assert len(listed(text)) == tensor_table.MOST_ROWS == 2_000
    assert "and 500 tensors more, in tensors.csv" in text


# --- in a browser ---------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def page(tmp_path_factory):
    if chromium.found() is None:
        pytest.skip("Chromium is not installed")
    with chromium.browser(tmp_path_factory.mktemp("profile")) as running:
        yield running


pytestmark = pytest.mark.filterwarnings("ignore")


WIDTHS = (390, 1280, 1920)
JUDGED = one_in(3, WIDTHS)  # by axe in the light, which takes seconds


@pytest.mark.slow
@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize(
    "names", [("every-kind",), tuple(EXAMPLES)], ids=["one model", "all examples"]
)
def test_axe_finds_no_fault_at_any_width(names, dark, page, tmp_path):
    file = tmp_path / "page.html"
    file.write_text(page_with(TENSORS, *names))
    for width in (1280,) if dark else WIDTHS:
        page.open(file, dark=dark, width=width)
        page.do("document.querySelectorAll('details').forEach((one) => { one.open = true; })")
        assert page.do("document.documentElement.scrollWidth <= innerWidth"), width
        # The page's policy lets no script run but the debugger's own.
        if dark or width in JUDGED:
            assert page.axe() == [], width
    assert page.complaints == []
    assert [one for one in page.requests if not one.startswith(("file:", "data:"))] == []


@pytest.mark.slow
def test_ninety_two_thousand_tensors_are_filtered_by_name_and_number(page, tmp_path):
    """58 layers of 256 experts of three matrices and their scales; and 1,990 that nothing folds."""
    ends = [
        f"{name}_proj.{what}" for name in ("gate", "up", "down") for what in ("weight", "scale")
    ]
    names = (
        f"model.layers.{layer}.mlp.experts.{expert}.{end}"
        for layer in range(3, 61)
        for expert in range(256)
        for end in ends
    )
    rows = [*(tensor(name, 2048, 7168) for name in names)]
    rows += [tensor(f"stray.{'x' * number}", 1) for number in range(1, 1_991)]
    file = tmp_path / "page.html"
    file.write_text(page_with(ListedTensors(*rows), "every-kind"))
    assert len(rows) > 91_000
    assert file.stat().st_size < 3_000_000
    page.open(file)
    page.do("document.querySelector('details.tensors').open = true")
    shown = "[...document.querySelectorAll('.tensors tbody tr:not([hidden])')]"
    for query, found in {
        "layers.7. up_proj.weight": 1,
        "layers.2.": 0,
        "experts.255.gate": 2,
        "experts.256.": 0,
        "stray [1]": 1_990,
        "": 1_996,
    }.items():
        page.do(
            "(() => { const field = document.querySelector('.tensors input');"
            f"field.value = {query!r}; field.dispatchEvent(new Event('input')); }})()"
        )
        assert page.do(f"{shown}.length") == found, query
    assert page.do("document.querySelector('.tensors output').textContent") == (
        "1,996 of 1,996 rows"
    )
    assert page.complaints == []


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
