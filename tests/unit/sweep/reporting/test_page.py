"""The page of a night: what is in it. test_page_in_browser.py has what a browser makes of it."""

import base64
import hashlib
import json
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.night_pages import NASTY, written_page
from support.nightly_stores import COMMIT, finding, outcome_of, plain, store_of, unaudited
from support.outcomes.clean_bert import bert_base_chinese
from support.outcomes.examples import HOSTILE, diagnosed

from auditor.formats.markup import html_fragment
from auditor.formats.text import short_count
from auditor.sweep.reporting import page as module
from auditor.sweep.reporting.files import TABLES, ascii_json
from auditor.sweep.reporting.heading import new_row
from auditor.sweep.reporting.night import Wanted, write_night

SECOND, THIRD = "2026-11-20", "2026-11-21"


def block(text, name):
    return json.loads(re.search(rf'id="{name}">(.*?)</script>', text, re.DOTALL).group(1))


@given(
    st.recursive(
        st.text(st.characters(exclude_categories=())) | st.sampled_from(NASTY + HOSTILE),
        st.lists,
        max_leaves=5,
    )
)
def test_a_block_of_json_is_ascii_opens_no_tag_and_loses_nothing(value):
    text = ascii_json(value)
    assert text.isascii()
    assert "<" not in text
    assert json.loads(text) == value


def test_the_policy_names_the_digests_of_the_style_and_the_script(tmp_path):
    text = written_page(tmp_path, {THIRD: [plain("o/a")]}).read_text()
    [policy] = re.findall(r'http-equiv="Content-Security-Policy" content="([^"]*)"', text)
    assert policy.startswith("default-src 'none'; ")
    assert "unsafe" not in policy
    for tag, kind in (("style", "style-src"), ('script type="module"', "script-src")):
        [content] = re.findall(rf"<{tag}>(.*?)</{tag.split()[0]}>", text, re.DOTALL)
        digest = base64.b64encode(hashlib.sha256(content.encode()).digest()).decode()
        assert f"{kind} 'sha256-{digest}'" in policy


def test_nothing_of_the_page_is_elsewhere(tmp_path):
    text = written_page(tmp_path, {THIRD: [plain("o/a", finding("missing", "a"))]}).read_text()
    assert not re.search(r"""\b(src|action)\s*=|@import|url\((?!#)|\bfetch\(""", text)
    linked = {f"https://huggingface.co/o/a/tree/{COMMIT}"}
    hosts = {"http://www.w3.org/2000/svg", "https://huggingface.co/"}
    assert {*re.findall(r"https?://[^\s\"'`]+", text)} == {*hosts, *linked}
    links = {*re.findall(r"""\bhref\s*=\s*"([^"]*)\"""", text)}
    files = {f"{name}.csv" for name in TABLES} | {"summary.json"}
    [page] = links - {*linked, *files}
    assert re.fullmatch(r"models/o-a-[0-9a-f]{12}\.html", page)


@given(st.text(st.characters(exclude_categories=())) | st.sampled_from(NASTY))
def test_no_name_leads_anywhere_but_to_its_model_on_the_hub(name):
    item = {"model": name, "commit": name, "component": name, "severity": "error"}
    item |= {"last_modified": None, "commit_authors": name, "change": "new"}
    model, *_ = new_row({**item, "what": name, "said": name})
    [link] = re.findall(r'href="([^"]*)"', html_fragment(model))
    assert re.fullmatch(r"https://huggingface\.co/[A-Za-z0-9._~/%-]*", link)


def test_no_name_is_markup_anywhere_in_the_page(tmp_path):
    def tags(folder, names, night):
        models = [plain(f"o/{name}", finding("missing", name), target=name) for name in names]
        entry = {"kind": "missing", "model": "none", "reason": night}
        (tmp_path / "baseline.json").write_text(json.dumps({"accept": [entry]}))
        store = store_of(tmp_path / folder / "sweep.sqlite", {night: models}, authors=night)
        folder, baseline = tmp_path / folder / "out", tmp_path / "baseline.json"
        write_night(store, wanted=Wanted(folder=folder, baseline=baseline))
        text = (folder / "index.html").read_text()
        assert text.isascii()
        found = re.findall(r"<[a-z!/][^>]*>", text, re.IGNORECASE)
        return [re.sub(r'href="[^"]*"', "href", tag) for tag in found]

    names = NASTY[:-1]
    assert tags("a", names, NASTY[0]) == tags("b", map(str, range(len(names))), "night")


def test_the_blocks_hold_every_model_and_what_is_shared_once(tmp_path):
    missing = finding("missing", "a")
    models = [plain(f"o/{n}", missing) for n in range(5)] + [outcome_of(bert_base_chinese())]
    text = written_page(tmp_path, {THIRD: models}).read_text()
    assert [row[0] for row in block(text, "models")] == [
        "google-bert/bert-base-chinese",
        *(f"o/{n}" for n in range(5)),
    ]
    assert len(block(text, "findings")) == 1 + 3
    assert len(block(text, "trees")) == 1


def test_a_row_holds_the_causes_of_its_model_and_the_top_counts_them(tmp_path):
    text = written_page(tmp_path, {THIRD: [outcome_of(diagnosed()), plain("o/b")]}).read_text()
    rows = {row[0]: row for row in block(text, "models")}
    [[cause, severity, change, summary, fix, component]] = rows["org/short"][18]
    assert (cause, severity, change, component) == ("config-field", 0, 0, "")
    assert summary.startswith("num_hidden_layers is 4, the files hold 3")
    assert fix.startswith("set num_hidden_layers to 3")
    assert rows["o/b"][18] == []
    counted = 3 * '<td class="figure">1</td>'
    assert f'<tr><th scope="row">config-field</th>{counted}</tr>' in text
    without = written_page(tmp_path / "x", {THIRD: [plain("o/b")]}).read_text()
    assert "<h2>Causes</h2>" not in without


def test_bytes_and_parameters_have_units_of_their_own(tmp_path):
    text = written_page(tmp_path, {THIRD: [outcome_of(bert_base_chinese())]}).read_text()
    assert "<strong>102.9M</strong><span>parameters</span>" in text
    assert "in 206 tensors, 392 MiB on disk" in text


def test_a_page_beyond_its_bound_leaves_out_clean_models_and_mentions_it(tmp_path, monkeypatch):
    monkeypatch.setattr(module, "MOST_MODELS", 3)
    models = [plain("o/a"), plain("o/b", finding("missing", "a")), plain("o/c"), unaudited("o/d")]
    text = written_page(tmp_path, {THIRD: models}).read_text()
    assert [row[0] for row in block(text, "models")] == ["o/b", "o/d"]
    assert "Not on this page: 2 models; models.csv has them" in text


def test_findings_of_one_model_are_bounded_those_that_alarm_first(tmp_path):
    many = [finding("renamed", f"n{n}") for n in range(40)] + [finding("missing", "x" * 10_000)]
    text = written_page(tmp_path, {THIRD: [plain("o/a", *many)]}).read_text()
    [row] = block(text, "models")
    found = [block(text, "findings")[place] for place, _, _ in row[14]]
    assert (len(found), row[15]) == (30, 11)
    assert found[0][0] == "missing"
    assert len(found[0][4][0]) == 200


@pytest.mark.parametrize(
    ("number", "shown"),
    [
        (0, "0"),
        (999, "999"),
        (1234, "1.2K"),
        (10**9, "1.0B"),
        (7 * 10**12, "7.0T"),
        (10**16, "10,000.0T"),
    ],
)
def test_a_number_on_a_tile_reads_as(number, shown):
    assert short_count(number) == shown
