"""The page of a night: what is in it. test_page_in_browser.py has what a browser makes of it."""

import base64
import hashlib
import json
import re
from pathlib import PurePath

from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace
from support.night_pages import NASTY, written_page
from support.nightly_stores import (
    COMMIT,
    THIRD,
    A,
    finding,
    outcome_of,
    plain,
    store_of,
    unaudited,
    written,
)
from support.outcomes.clean_bert import bert_base_chinese
from support.outcomes.examples import EXAMPLES, HOSTILE, diagnosed

from auditor.formats import View, as_json, verdict
from auditor.formats.markup import html_fragment
from auditor.formats.registry import FORMATS
from auditor.formats.stored_outcome import outcome_from
from auditor.formats.text import short_count
from auditor.sweep.reporting import night as reporting
from auditor.sweep.reporting import page as module
from auditor.sweep.reporting.files import TABLES, ascii_json
from auditor.sweep.reporting.heading import new_row
from auditor.sweep.reporting.night import Wanted, page_name, write_night


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


def test_a_number_on_a_tile_is_short():
    shown = {999: "999", 1234: "1.2K", 10**9: "1.0B", 10**16: "10,000.0T"}
    assert {number: short_count(number) for number in shown} == shown


# --- pages of models ------------------------------------------------------------------------------


def read_back(outcome):
    return outcome_from(json.loads(as_json.render(outcome)))


def test_a_page_of_the_stored_outcome_is_that_of_the_audit():
    for example in EXAMPLES.values():
        pages = [FORMATS["html"]([one], View()) for one in (example(), read_back(example()))]
        assert pages[0] == pages[1], example
        assert verdict.sentence(read_back(example())) == verdict.sentence(example())
        assert verdict.account(read_back(example())) == verdict.account(example())


def test_a_field_that_no_shape_determines_is_read_back_without_a_value():
    cause = replace(diagnosed().diagnosis[0], fields=(), undetermined=(("vocab_size", 8),))
    outcome = replace(diagnosed(), diagnosis=(cause,))
    assert read_back(outcome).diagnosis == (cause,)


def linked(folder):
    """By model the file that its page is in, as the script has it; and the links of the news."""
    text = (folder / "index.html").read_text()
    [words] = re.findall(r'id="words">(.*?)</script>', text)
    news = re.findall(
        r'<a href="(models/[^"]*)">report<span class="hidden"> of <bdi>(.*?)</bdi>', text
    )
    return json.loads(words)["pages"], {model: place for place, model in news}


def test_only_models_with_findings_have_a_page(tmp_path):
    models = [outcome_of(diagnosed()), outcome_of(bert_base_chinese()), unaudited("o/gated")]
    half = {**unaudited("o/half"), "findings": [A]}
    report, folder = written(tmp_path, {THIRD: [*models, half, plain("o/clean")]})
    pages, news = linked(folder)
    assert {*pages} == {"org/short", "o/half"}
    assert news["org/short"] == pages["org/short"]
    assert report.summary["pages"] == len(pages)
    assert {path.name for path in (folder / "models").iterdir()} == {
        PurePath(place).name for place in pages.values()
    }
    [text] = FORMATS["html"]([diagnosed()], View()).values()
    assert (folder / pages["org/short"]).read_text() == text


def test_pages_are_bounded_in_number_and_in_bytes_and_what_is_new_goes_first(tmp_path, monkeypatch):
    monkeypatch.setattr(reporting, "MOST_PAGES", 2)
    known = [plain(f"o/{name}", A) for name in "abc"]
    new = [plain("o/y", A, finding("unexpected", "z")), plain("o/z", A)]
    nights = {"2026-11-20": known, THIRD: [*known, *new]}
    for night, models in (("2026-11-20", {"o/a", "o/b"}), (THIRD, {"o/y", "o/z"})):
        _, folder = written(tmp_path, nights, night=night)
        assert {*linked(folder)[0]} == models
    size = (folder / linked(folder)[0]["o/y"]).stat().st_size
    monkeypatch.setattr(reporting, "MOST_BYTES", size + 1)
    assert {*linked(written(tmp_path, nights, night=THIRD)[1])[0]} == {"o/y"}


def test_an_outcome_that_cannot_be_read_has_no_page_and_the_night_is_reported(tmp_path):
    strange = plain("o/new", {**A, "kind": "of-another-version"})
    _, folder = written(tmp_path, {THIRD: [strange, plain("o/a", A)]})
    assert {*linked(folder)[0]} == {"o/a"}


def test_no_name_of_a_model_leads_elsewhere_or_writes_a_link(tmp_path):
    models = [plain(f"o/{name}", A) for name in (*NASTY, "../../etc", "..", "__proto__")]
    _, folder = written(tmp_path, {THIRD: [*models, plain("constructor", A)]})
    written_files = {path for path in tmp_path.rglob("*.html") if path.name != "index.html"}
    assert {path.parent for path in written_files} == {folder / "models"}
    assert len(written_files) == len(models) + 1
    links = re.findall(
        r'<a href="(?!https://huggingface\.co/)([^"]*)"', (folder / "index.html").read_text()
    )
    assert all(re.fullmatch(r"models/[\w.-]+\.html|\w+\.(csv|json)", link) for link in links)


@given(st.sets(st.text(st.characters(exclude_categories=())) | st.sampled_from(HOSTILE)))
def test_each_id_has_a_file_of_its_own_in_the_folder(ids):
    names = {page_name(one) for one in ids}
    assert len(names) == len(ids)
    for name in names:
        assert re.fullmatch(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,110}\.html", name)
