"""The page of a night: what is in it, and what a browser makes of it."""

import base64
import hashlib
import json
import re
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support import chromium
from support.nightly_stores import COMMIT, finding, outcome_of, plain, store_of, unaudited
from support.outcomes.clean_bert import bert_base_chinese
from support.outcomes.every_kind import every_kind
from support.outcomes.examples import HOSTILE, diagnosed, gated, hostile, pipeline

from auditor.formats.text import printable
from auditor.sweep.reporting import page as module
from auditor.sweep.reporting.files import TABLES
from auditor.sweep.reporting.heading import new_row, short
from auditor.sweep.reporting.night import Wanted, write_night
from auditor.sweep.reporting.page import ascii_json

SECOND, THIRD = "2026-11-20", "2026-11-21"
NASTY = (
    "<img src=x onerror=alert(1)>",
    "</script><script>alert(2)</script>",
    "<!--<script>",
    "'\"><svg onload=alert(3)>",
    "\u202egnp.exe",
    "\u05e9\u05dc\u05d5\u05dd/\u0645\u0631\u062d\u0628\u0627",
    "@models@$night${script}",
    "a\u2028b\u0000c",
)


def written(folder, nights):
    folder.mkdir(exist_ok=True)
    store = store_of(folder / "sweep.sqlite", nights)
    write_night(store, wanted=Wanted(folder=folder / "out"))
    return folder / "out" / "index.html"


def block(text, name):
    return json.loads(re.search(rf'id="{name}">(.*?)</script>', text, re.DOTALL).group(1))


# --- without a browser ----------------------------------------------------------------------


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
    text = written(tmp_path, {THIRD: [plain("o/a")]}).read_text()
    [policy] = re.findall(r'http-equiv="Content-Security-Policy" content="([^"]*)"', text)
    assert policy.startswith("default-src 'none'; ")
    assert "unsafe" not in policy
    for tag, kind in (("style", "style-src"), ('script type="module"', "script-src")):
        [content] = re.findall(rf"<{tag}>(.*?)</{tag.split()[0]}>", text, re.DOTALL)
        digest = base64.b64encode(hashlib.sha256(content.encode()).digest()).decode()
        assert f"{kind} 'sha256-{digest}'" in policy


def test_nothing_of_the_page_is_elsewhere(tmp_path):
    text = written(tmp_path, {THIRD: [plain("o/a", finding("missing", "a"))]}).read_text()
    assert not re.search(r"""\b(src|action)\s*=|@import|url\((?!#)|\bfetch\(""", text)
    linked = {f"https://huggingface.co/o/a/tree/{COMMIT}"}
    assert {*re.findall(r"https?://[^\s\"'`]+", text)} == {"http://www.w3.org/2000/svg", *linked}
    links = {*re.findall(r"""\bhref\s*=\s*"([^"]*)\"""", text)}
    files = {f"{name}.csv" for name in TABLES} | {"summary.json"}
    assert links == {*linked, *files}


@given(st.text(st.characters(exclude_categories=())) | st.sampled_from(NASTY))
def test_no_name_leads_anywhere_but_to_its_model_on_the_hub(name):
    item = {"model": name, "commit": name, "component": name, "severity": "error"}
    [link] = re.findall(r'href="([^"]*)"', new_row({**item, "what": name, "said": name}))
    assert re.fullmatch(r"https://huggingface\.co/[A-Za-z0-9._~/%-]*", link)


def test_no_name_is_markup_anywhere_in_the_page(tmp_path):
    def tags(folder, names, night):
        models = [plain(f"o/{name}", finding("missing", name), target=name) for name in names]
        entry = {"kind": "missing", "model": "none", "reason": night}
        (tmp_path / "baseline.json").write_text(json.dumps({"accept": [entry]}))
        store = store_of(tmp_path / folder / "sweep.sqlite", {night: models})
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
    text = written(tmp_path, {THIRD: models}).read_text()
    assert [row[0] for row in block(text, "models")] == [
        "google-bert/bert-base-chinese",
        *(f"o/{n}" for n in range(5)),
    ]
    assert len(block(text, "findings")) == 1 + 3
    assert len(block(text, "trees")) == 1


def test_a_row_holds_the_causes_of_its_model_and_the_top_counts_them(tmp_path):
    text = written(tmp_path, {THIRD: [outcome_of(diagnosed()), plain("o/b")]}).read_text()
    rows = {row[0]: row for row in block(text, "models")}
    [[cause, severity, change, summary, fix, component]] = rows["org/short"][18]
    assert (cause, severity, change, component) == ("config-field", 0, 0, "")
    assert summary.startswith("num_hidden_layers is 4, the files hold 3")
    assert fix.startswith("set num_hidden_layers to 3")
    assert rows["o/b"][18] == []
    counted = "<td>1</td><td>1</td><td>1</td>"
    assert f'<tr><th scope="row">config-field</th>{counted}</tr>' in text
    assert "<h2>Causes</h2>" not in written(tmp_path / "x", {THIRD: [plain("o/b")]}).read_text()


def test_bytes_and_parameters_have_units_of_their_own(tmp_path):
    text = written(tmp_path, {THIRD: [outcome_of(bert_base_chinese())]}).read_text()
    assert "<strong>103M</strong><span>parameters</span>" in text
    assert "in 206 tensors, 392 MiB on disk" in text


def test_beyond_its_bound_a_page_leaves_out_what_is_clean_and_says_so(tmp_path, monkeypatch):
    monkeypatch.setattr(module, "MOST_MODELS", 3)
    models = [plain("o/a"), plain("o/b", finding("missing", "a")), plain("o/c"), unaudited("o/d")]
    text = written(tmp_path, {THIRD: models}).read_text()
    assert [row[0] for row in block(text, "models")] == ["o/b", "o/d"]
    assert "2 models are left out of this page, and are in models.csv" in text


def test_findings_of_one_model_are_bounded_those_that_alarm_first(tmp_path):
    many = [finding("renamed", f"n{n}") for n in range(40)] + [finding("missing", "x" * 10_000)]
    text = written(tmp_path, {THIRD: [plain("o/a", *many)]}).read_text()
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
        (1234, "1.23k"),
        (10**9, "1B"),
        (7 * 10**12, "7T"),
        (10**20, "1.00e+20"),
    ],
)
def test_a_number_on_a_tile_reads_as(number, shown):
    assert short(number) == shown


# --- in a browser ---------------------------------------------------------------------------

needs_chromium = pytest.mark.skipif(
    chromium.found() is None,
    reason="needs Chromium: apt-get install chromium (the page is not looked at without it)",
)


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
    page.open(written(tmp_path, nights))
    return page


@pytest.mark.slow
@needs_chromium
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


@pytest.mark.slow
@needs_chromium
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


@pytest.mark.slow
@needs_chromium
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


@pytest.mark.slow
@needs_chromium
def test_what_is_new_comes_first_and_a_cause_is_in_its_row_and_its_section(page, tmp_path):
    page.open(written(tmp_path, {THIRD: [outcome_of(diagnosed()), plain("o/b")]}))
    rows = page.do("[...document.querySelectorAll('.news tbody tr')].map(row => row.textContent)")
    assert [row.startswith("org/short") for row in rows] == [True, True]
    assert "config-fieldnum_hidden_layers is 4, the files hold 3" in rows[0]
    first = "document.querySelector('main h2').textContent"
    assert page.do(first) == "New tonight"
    click(page, ".row button", "org/short")
    told = page.do("document.querySelector('.detail .why').textContent")
    assert "config-field num_hidden_layers is 4" in told
    assert "Fix set num_hidden_layers to 3" in told


@pytest.mark.slow
@needs_chromium
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


@pytest.mark.slow
@needs_chromium
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


@pytest.mark.slow
@needs_chromium
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


@pytest.mark.slow
@needs_chromium
def test_modules_are_there_as_a_table_too(several):
    click(several, ".row button", "org/pipeline")
    several.do("document.querySelector('.detail details').open = true")
    several.do("new Promise(requestAnimationFrame)")
    rows = several.do(
        "[...document.querySelectorAll('.detail details tbody tr')].map(row => "
        "[...row.cells].map(cell => cell.textContent))"
    )
    assert ["text_encoder", "1", "3", "25", "20", "differs"] in rows


@pytest.mark.slow
@needs_chromium
def test_hostile_names_are_text_and_nothing_runs(page, tmp_path):
    bad = [
        plain(f"o/{name}", finding("missing", name, reason=name), target=name, model_type=name)
        for name in NASTY
    ]
    known = outcome_of(replace(gated(), detail=NASTY[0]), model="o/gated", commit="c" * 40)
    strange = outcome_of(hostile(), requested="o/h", commit="d" * 40)
    page.open(written(tmp_path, {THIRD: [*bad, known, strange]}))
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


@pytest.mark.slow
@needs_chromium
@pytest.mark.parametrize("width", [390, 1280, 1920])
def test_nothing_but_the_table_of_models_is_wider_than_the_screen(page, tmp_path, width):
    models = [outcome_of(example()) for example in (every_kind, diagnosed, pipeline)]
    page.open(written(tmp_path, {THIRD: models}), width=width)
    assert page.do("document.scrollingElement.scrollWidth") == width
    inside = "document.querySelector('.news').parentElement"
    assert page.do(f"{inside}.scrollWidth - {inside}.clientWidth") == 0


@pytest.mark.slow
@needs_chromium
@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_axe_finds_no_fault_at_any_width(page, tmp_path, dark):
    axe = Path(sys.prefix) / "axe" / "node_modules" / "axe-core" / "axe.min.js"
    if not axe.exists():
        pytest.skip("axe-core is not installed: npm")
    models = [outcome_of(example()) for example in (every_kind, diagnosed, pipeline)]
    path = written(tmp_path, {THIRD: [*models, plain("o/clean"), unaudited("o/gated")]})
    for width in (390, 1280, 1920):
        page.open(path, dark=dark, width=width)
        page.do("document.querySelectorAll('.row button').forEach((one) => one.click())")
        page.do("document.querySelectorAll('details').forEach((one) => { one.open = true; })")
        page.do("new Promise(requestAnimationFrame)")
        page.do(axe.read_text())
        found = page.do(
            "axe.run(document, {resultTypes: ['violations']}).then((said) => said.violations"
            ".map((one) => one.id + ': ' + one.nodes.map((node) => node.html).join(' | ')))"
        )
        assert found == [], width


@pytest.mark.slow
@needs_chromium
def test_columns_stand_below_their_headers(several):
    click(several, ".row button", "org/pipeline")
    several.do("document.querySelector('.detail details').open = true")
    several.do("new Promise(requestAnimationFrame)")
    for table in ("#table", ".detail details table"):
        ends = several.do(
            f"(() => {{ const table = document.querySelector({json.dumps(table)});"
            "const inner = (cell) => { const range = document.createRange();"
            "range.selectNodeContents(cell.querySelector('button') ?? cell);"
            "return Math.round(range.getBoundingClientRect().right); };"
            "const right = (cell) => getComputedStyle(cell).textAlign === 'right';"
            "return [...table.tHead.rows[0].cells].map((head, at) => [right(head),"
            "inner(head), inner(table.tBodies[0].rows[0].cells[at])]); })()"
        )
        assert any(figure for figure, *_ in ends)
        assert all(abs(head - cell) <= 1 for figure, head, cell in ends if figure and cell), ends


@pytest.mark.slow
@needs_chromium
def test_the_page_is_drawn_in_the_dark_too(page, tmp_path):
    path = written(tmp_path, {THIRD: [plain("o/a")]})
    color = "getComputedStyle(document.body).backgroundColor"
    page.open(path)
    light = page.do(color)
    page.open(path, dark=True)
    assert page.do(color) != light


@pytest.mark.slow
@needs_chromium
def test_ten_thousand_models_are_loaded_sorted_and_filtered(page, tmp_path, capsys):
    known = outcome_of(bert_base_chinese())
    sizes = known["observed"]

    def model(number):
        # No two trees are alike, which is the most that a page can hold.
        modules = [{**row, "tensors": row["tensors"] + number} for row in known["modules"]]
        observed = {**sizes, "parameters": sizes["parameters"] + number}
        name = f"org{number % 97}/model-{number:05}"
        more = {"requested": name, "model": name, "modules": modules, "observed": observed}
        return {**known, **more}

    path = written(tmp_path, {THIRD: map(model, range(10_000))})
    timed = {"load": page.open(path)}
    assert page.do(COUNT) == "1\u2013100 of 10,000"
    for name, act in {
        "sort": lambda: click(page, "thead button", "Parameters"),
        "filter": lambda: type_in(page, "org6/ 0999"),
        "open": lambda: click(page, ".row button"),
    }.items():
        since = time.monotonic()
        act()
        timed[name] = time.monotonic() - since
    assert page.do(COUNT) == "1\u20131 of 1"
    assert page.do(NAMES) == ["org6/model-09997"]
    assert page.do("document.querySelectorAll('.icicle .cell').length") > 10
    said = ", ".join(f"{name} {seconds:.2f} s" for name, seconds in timed.items())
    with capsys.disabled():
        print(f"\n10,000 models, {path.stat().st_size / 1e6:.1f} MB of page: {said}")  # noqa: T201 - for who reads the log
