"""The page of a night, as Chromium shows it: at several widths, with a mouse and with keys."""

import json
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest
from msgspec.structs import replace
from support import chromium
from support.examples import one_in
from support.night_pages import NASTY, written_page
from support.nightly_stores import finding, outcome_of, plain, unaudited
from support.outcomes.clean_bert import bert_base_chinese
from support.outcomes.every_kind import every_kind
from support.outcomes.examples import diagnosed, gated, hostile, pipeline

from auditor.messages import printable
from auditor.sweep.reporting import page as module

SECOND, THIRD = "2026-11-20", "2026-11-21"

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        chromium.found() is None,
        reason="needs Chromium: apt-get install chromium (the page is not looked at without it)",
    ),
]


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    with chromium.browser(tmp_path_factory.mktemp("profile")) as running:
        yield running


@pytest.fixture
def page(browser):
    """A browser that must have nothing to complain about, and that loaded one file."""
    browser.complaints.clear()
    browser.requests.clear()
    yield browser
    assert browser.complaints == []
    assert {url.partition(":")[0] for url in browser.requests} == {"file"}
    assert len({*browser.requests}) == 1


NAMES = "[...document.querySelectorAll('.row td.name')].map(cell => cell.textContent)"
COUNT = "document.getElementById('count').textContent"


def click(page, selector, text=""):
    page.do(
        f"[...document.querySelectorAll({json.dumps(selector)})]"
        f".find(one => one.textContent.includes({json.dumps(text)})).click()"
    )


def type_in(page, text):
    page.do(
        f"(() => {{ const query = document.getElementById('query'); query.value = "
        f"{json.dumps(text)}; query.dispatchEvent(new Event('input')); }})()"
    )


@pytest.fixture
def several(page, tmp_path):
    """A page of a few models of every state."""
    broken = finding("missing", "encoder.weight")
    odd = finding("unexpected", "odd")
    nights = {
        SECOND: [
            plain("o/known", odd),
            plain("o/clean", target="BertModel"),
            plain("o/mended", broken),
        ],
        THIRD: [
            plain("o/known", odd),
            plain("o/clean", target="BertModel"),
            plain("o/mended", commit="b" * 40),
            plain("o/broken", broken, commit="b" * 40),
            unaudited("o/gated"),
            outcome_of(every_kind()),
            outcome_of(pipeline()),
            outcome_of(bert_base_chinese()),
        ],
    }
    page.open(written_page(tmp_path, nights))
    return page


def test_the_worst_come_first_and_a_header_sorts(several):
    assert several.do(NAMES) == [
        "o/broken",
        "org/pipeline",
        "someone/every-kind",
        "o/known",
        "o/gated",
        "google-bert/bert-base-chinese",
        "o/clean",
        "o/mended",
    ]
    click(several, "thead button", "Parameters")
    by_size = several.do(NAMES)
    assert by_size[:3] == ["google-bert/bert-base-chinese", "org/pipeline", "someone/every-kind"]
    assert by_size[-1] == "o/gated"  # of which nothing is known
    click(several, "thead button", "Parameters")
    assert several.do(NAMES)[-2:] == ["google-bert/bert-base-chinese", "o/gated"]
    sorts = "document.querySelector('[aria-sort]').getAttribute('aria-sort')"
    assert several.do(sorts) == "ascending"
    click(several, "thead button", "Model")
    assert several.do(NAMES) == sorted(several.do(NAMES))


def test_text_states_and_kinds_filter(several):
    type_in(several, "BERT o/")
    assert several.do(NAMES) == ["o/clean"]
    type_in(several, "no such model")
    assert (several.do(NAMES), several.do(COUNT)) == ([], "0 models")
    type_in(several, "")
    click(several, "#states button", "new findings")
    assert several.do(NAMES) == ["o/broken", "org/pipeline", "someone/every-kind"]
    click(several, "#states button", "not audited")
    assert several.do(NAMES)[-1] == "o/gated"
    click(several, "#states button", "new findings")
    click(several, "#states button", "not audited")
    several.do(
        "(() => { const kind = document.getElementById('kind'); kind.value = 'unexpected';"
        "kind.dispatchEvent(new Event('change')); })()"
    )
    assert several.do(NAMES) == ["org/pipeline", "someone/every-kind", "o/known"]


def test_what_is_shown_is_in_the_address(several):
    type_in(several, "o/")
    click(several, "#states button", "clean")
    click(several, "thead button", "Model")
    click(several, "thead button", "Model")
    assert several.do("location.hash") == "#q=o%2F&state=clean&sort=-Model"
    several.do("location.hash = '#kind=missing&sort=Errors&state=new&q=o/broken'")
    several.do("new Promise(requestAnimationFrame)")
    assert several.do(NAMES) == ["o/broken"]
    assert several.do("document.getElementById('kind').value") == "missing"
    assert several.do("document.getElementById('query').value") == "o/broken"
    pressed = (
        "[...document.querySelectorAll('.chip[aria-pressed=true]')].map(one => one.textContent)"
    )
    assert several.do(pressed) == ["new findings 3"]
    several.do("location.hash = ''")
    several.do("new Promise(requestAnimationFrame)")
    assert len(several.do(NAMES)) == 8


def test_what_is_new_comes_first_and_a_cause_is_in_its_row_and_its_section(page, tmp_path):
    page.open(written_page(tmp_path, {THIRD: [outcome_of(diagnosed()), plain("o/b")]}))
    rows = page.do("[...document.querySelectorAll('.news tbody tr')].map(row => row.textContent)")
    assert [row.startswith("org/short") for row in rows] == [True, True]
    assert "config-fieldnum_hidden_layers is 4, the files hold 3" in rows[0]
    first = "document.querySelector('main h2').textContent"
    assert page.do(first) == "New or changed tonight"
    click(page, ".row button", "org/short")
    told = page.do("document.querySelector('.detail .why').textContent")
    assert "config-field num_hidden_layers is 4" in told
    assert "Fix set num_hidden_layers to 3" in told
    places = [".news a[href^=models]", ".detail a[href^=models]"]
    hrefs = [page.do(f"document.querySelector({json.dumps(one)}).href") for one in places]
    assert hrefs[0] == hrefs[1]
    assert Path(unquote(urlsplit(hrefs[0]).path)).read_text().startswith("<!doctype html>")


def test_a_section_opens_on_demand_with_modules_and_folded_findings(several):
    assert several.do("document.querySelectorAll('.detail').length") == 0
    click(several, ".row button", "someone/every-kind")
    said = several.do("document.querySelector('.detail').textContent")
    assert "0123456789abcdef0123456789abcdef01234567" in said
    cells = "[...document.querySelectorAll('.icicle .cell')].map(one => one.ariaLabel)"
    labels = several.do(cells)
    assert any(label.startswith("encoder.3: missing.") for label in labels)
    assert any(label.startswith("encoder.{0-2,10}, 4 modules: equal.") for label in labels)
    folded = "[...document.querySelectorAll('.findings details')].map(one => one.open)"
    shown = min(len(every_kind().findings), module.MOST_FINDINGS)  # findings.csv has all of them
    assert several.do(folded) == [False] * shown
    click(several, ".row button", "someone/every-kind")
    assert several.do("document.querySelectorAll('.detail').length") == 0


def test_the_icicle_is_wide_where_the_parameters_are_and_shows_what_is_small_and_amiss(several):
    click(several, ".row button", "google-bert/bert-base-chinese")
    widths = dict(
        several.do(
            "[...document.querySelectorAll('.icicle .cell')].map(one => "
            "[one.ariaLabel.split(/[,:]/)[0], +one.firstChild.getAttribute('width')])"
        )
    )
    share = widths["bert.encoder"] / widths["(whole model)"]
    assert abs(share - 85_054_464 / 102_882_442) < 0.02
    assert widths["cls.seq_relationship"] >= 4  # 1,538 of 102,882,442 parameters


def test_the_icicle_has_the_colour_of_a_kind_and_the_pattern_of_a_status(page, tmp_path):
    layer = "layers.0"
    names = {"": "differs", "embed_tokens": "equal", "odd": "unexpected", layer: "differs"}
    names |= {f"{layer}.mlp": "differs", f"{layer}.mlp.up_proj": "equal"}
    names |= {f"{layer}.self_attn": "missing", f"{layer}.self_attn.q_proj": "missing"}
    modules = [
        {
            "prefix": name,
            "depth": len(name.split(".")) if name else 0,
            "tensors": 1,
            "elements": 6,
            "parameters": 6,
            "expected": 6,
            "difference": 0,
            "formula": None,
            "status": status,
        }
        for name, status in names.items()
    ]
    page.open(written_page(tmp_path, {THIRD: [plain("o/kinds", modules=modules)]}))
    click(page, ".row button", "o/kinds")
    drawn = page.do(
        "Object.fromEntries([...document.querySelectorAll('.icicle .cell')].map(one => "
        "[one.ariaLabel.split(':')[0], [...one.querySelectorAll('rect')].map(drawn => "
        "drawn.getAttribute('class')).join()]))"
    )
    assert drawn == {
        "(whole model)": "k-several s-differs",
        "embed_tokens": "k-embeddings s-equal",
        "odd": "k-other s-unexpected,over p-unexpected",
        "layers.0": "k-several s-differs",
        "layers.0.mlp": "k-feed-forward s-equal",  # nothing inside is amiss
        "layers.0.mlp.up_proj": "k-feed-forward s-equal",
        "layers.0.self_attn": "k-attention s-missing,over p-missing",
        "layers.0.self_attn.q_proj": "k-attention s-missing,over p-missing",
    }
    assert "#p-missing" in page.do(
        "getComputedStyle(document.querySelector('rect.p-missing')).fill"
    )
    assert page.do("document.querySelectorAll('pattern#p-missing').length") == 1
    words = "[...document.querySelectorAll('.legend > span')].map(one => one.textContent)"
    assert page.do(words) == [
        *("attention", "feed forward", "embeddings", "other", "several kinds"),
        *("no pattern: equal", "differs", "missing", "unexpected"),
    ]


def test_all_of_it_can_be_done_with_the_keyboard(several):
    several.do("document.querySelector('.row button').focus()")
    several.press("ArrowDown")
    assert several.do("document.activeElement.textContent") == "org/pipeline"
    several.press("ArrowDown")
    several.press("Enter")
    assert several.do("document.activeElement.ariaExpanded") == "true"
    several.do("document.querySelector('.icicle [tabindex=\"0\"]').focus()")
    several.press("ArrowDown")
    several.press("ArrowDown")
    several.press("ArrowRight")
    focused = "document.activeElement.ariaLabel.split(':')[0]"
    assert several.do(focused) == "encoder.3"
    several.press("Escape")
    several.do("document.activeElement.blur()")
    several.press("/")
    assert several.do("document.activeElement.id") == "query"


def test_hostile_names_are_text_and_nothing_runs(page, tmp_path):
    bad = [
        plain(f"o/{name}", finding("missing", name, reason=name), target=name, model_type=name)
        for name in NASTY
    ]
    known = outcome_of(replace(gated(), detail=NASTY[0]), model="o/gated", commit="c" * 40)
    strange = outcome_of(hostile(), requested="o/h", commit="d" * 40)
    page.open(written_page(tmp_path, {THIRD: [*bad, known, strange]}))
    shown = {*page.do(NAMES)}
    assert {f"o/{printable(name)}" for name in NASTY} <= shown
    page.do("document.querySelectorAll('.row button').forEach(one => one.click())")
    page.do("document.querySelectorAll('details').forEach(one => { one.open = true; })")
    assert page.do("document.querySelectorAll('img, iframe, object, link, base').length") == 0
    hosts = page.do("[...new Set([...document.querySelectorAll('a')].map(one => one.host))]")
    assert {*hosts} == {"huggingface.co", ""}
    assert page.do("document.querySelectorAll('script').length") == 5
    assert NASTY[0] in page.do("document.querySelector('#table').textContent")
    openers = "[...document.querySelectorAll('.row td.name button')]"
    assert page.do(f"{openers}.every(one => one.querySelector('bdi'))")


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_axe_finds_no_fault_at_any_width(page, tmp_path, dark):
    models = [outcome_of(example()) for example in (every_kind, diagnosed, pipeline)]
    path = written_page(tmp_path, {THIRD: [*models, plain("o/clean"), unaudited("o/gated")]})
    for width in (1280,) if dark else one_in(3, (390, 1280, 1920)):
        page.open(path, dark=dark, width=width)
        page.do("document.querySelectorAll('.row button').forEach((one) => one.click())")
        page.do("document.querySelectorAll('details').forEach((one) => { one.open = true; })")
        page.do("new Promise(requestAnimationFrame)")
        assert page.axe() == [], width
