"""The pages of models that a night's page links to: made of what the store keeps."""

import json
import re
from pathlib import PurePath

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import convert
from msgspec.structs import replace
from support.night_pages import NASTY
from support.nightly_stores import THIRD, A, finding, outcome_of, plain, unaudited, written
from support.outcomes.clean_bert import bert_base_chinese
from support.outcomes.examples import EXAMPLES, HOSTILE, diagnosed

from auditor.formats import View, as_json, verdict
from auditor.formats.as_json import outcome_from
from auditor.formats.document import Document
from auditor.formats.registry import FORMATS
from auditor.sweep.reporting import model_pages
from auditor.sweep.reporting.model_pages import page_name


def read_back(outcome):
    return outcome_from(convert(json.loads(as_json.render(outcome)), Document))


@pytest.mark.parametrize("example", EXAMPLES.values(), ids=EXAMPLES)
def test_a_page_of_the_stored_outcome_is_that_of_the_audit(example):
    pages = [FORMATS["html"]([one], View()) for one in (example(), read_back(example()))]
    assert pages[0] == pages[1]
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
    monkeypatch.setattr(model_pages, "MOST_PAGES", 2)
    known = [plain(f"o/{name}", A) for name in "abc"]
    new = [plain("o/y", A, finding("unexpected", "z")), plain("o/z", A)]
    nights = {"2026-11-20": known, THIRD: [*known, *new]}
    for night, models in (("2026-11-20", {"o/a", "o/b"}), (THIRD, {"o/y", "o/z"})):
        _, folder = written(tmp_path, nights, night=night)
        assert {*linked(folder)[0]} == models
    size = (folder / linked(folder)[0]["o/y"]).stat().st_size
    monkeypatch.setattr(model_pages, "MOST_BYTES", size + 1)
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
    links = re.findall(r'<a href="(?!https://huggingface\.co/)([^"]*)"', index_of(folder))
    assert all(re.fullmatch(r"models/[\w.-]+\.html|\w+\.(csv|json)", link) for link in links)


def index_of(folder):
    return (folder / "index.html").read_text()


@given(st.sets(st.text(st.characters(exclude_categories=())) | st.sampled_from(HOSTILE)))
def test_each_id_has_a_file_of_its_own_in_the_folder(ids):
    names = {page_name(one) for one in ids}
    assert len(names) == len(ids)
    for name in names:
        assert re.fullmatch(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,110}\.html", name)
