"""The text for people: safe, narrow, short, and the same wherever it is made."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace
from support.outcomes.clean_bert import bert_base_chinese
from support.outcomes.examples import EXAMPLES, gated, hostile
from support.outcomes.making import row, stored

from auditor.analytic import ExpectedTensor
from auditor.findings import BadHeader, Missing, Unexpected
from auditor.formats import View, terminal
from auditor.formats.text import cells_of, cut_name, lines_text
from auditor.formats.verdict import account, word
from auditor.report import FixCommand

ANSI = re.compile(r"\x1b\[[0-9;]*m")
EXPECTED = ExpectedTensor("a", (2, 3), 6)
TEXT = st.text(st.characters(exclude_categories=()), min_size=1, max_size=30)


def render(outcome, **view):
    return terminal.render(outcome, View(**view))


def table(outcome, **view):
    """The lines of the table of modules."""
    blocks = render(outcome, **view).split("\n\n")
    [found] = [block for block in blocks if block.startswith("module ")]
    return found.splitlines()


@given(TEXT, st.booleans())
def test_untrusted_text_is_not_interpreted(text, verbose):
    report = replace(
        hostile(),
        model=text,
        origin=text,
        target=text,
        modules=(row("", 1, 1, 0, "unexpected", of=1), row(text, 1, 1, 0, "unexpected", of=1)),
        findings=(Unexpected(tensors=(stored(text, 1),), reason=text),),
        notes=(text,),
    )
    lines = render(report, verbose=verbose).split("\n")
    assert all(line.isprintable() for line in lines)


def test_colour_changes_nothing_but_colour():
    for make in EXAMPLES.values():
        coloured = render(make(), color=True)
        plain = "".join(f"{line.rstrip()}\n" for line in ANSI.sub("", coloured).splitlines())
        assert coloured != plain == render(make())


def test_every_line_fits_the_width(subtests):
    for verbose, width in [(False, 80), (True, 80), (True, 120)]:
        with subtests.test(verbose=verbose, width=width):
            for name in EXAMPLES.keys() - {"hostile"}:
                text = render(EXAMPLES[name](), width=width, depth=3 + verbose, verbose=verbose)
                assert max(map(len, text.splitlines())) <= width, name


def test_figures_are_never_cut_however_narrow_the_terminal():
    assert "85,054,464         =  82.7%" in render(bert_base_chinese(), width=30)
    assert "102,882,442 100.0% 102,290,312   +592,130 differs" in render(
        bert_base_chinese(), width=30, verbose=True
    )


def test_a_clean_report_fits_a_screen_and_has_no_number_twice():
    assert len(render(bert_base_chinese()).splitlines()) <= 25
    numbers = re.findall(r"(?<![\d,.])\d[\d,]*\d(?![\d,.]|%)", render(bert_base_chinese()))
    assert {"102,882,442", "102,290,312", "592,130", "7,087,872"} <= {*numbers}
    assert len(numbers) == len({*numbers})


PART = st.from_regex(r"[a-z_]{1,8}|\{[0-9]{1,2}(-[0-9]{1,3})?(,[0-9]{1,3})*\}", fullmatch=True)


@given(parts=st.lists(PART, min_size=1, max_size=8), room=st.integers(1, 60))
def test_a_name_is_cut_between_its_parts_and_never_within_braces(parts, room):
    cut = cut_name(".".join(parts), room)
    assert cut.count("{") == cut.count("}")
    assert {*re.findall(r"\{.*?\}", cut)} <= {*parts}
    assert len(cut) <= max(room, len(cut) if "{" in cut else 0)
    if len(".".join(parts)) <= room:
        assert cut == ".".join(parts)


def test_an_ascii_terminal_sees_no_other_character():
    text = render(bert_base_chinese(), ascii_only=True)
    assert text.isascii()
    assert "82.7%  #################" in text


def large(layers, parameters):
    """`layers` layers of `parameters(n)` each, below one module."""
    of = sum(parameters(n) for n in range(layers))
    rows = (
        line
        for n in range(layers)
        for line in (
            row(f"h.{n}", 16, parameters(n), parameters(n), "equal", of=of),
            row(f"h.{n}.mlp", 16, parameters(n), parameters(n), "equal", of=of),
        )
    )
    whole = (row(name, 16 * layers, of, of, "equal", of=of) for name in ("", "h"))
    return replace(bert_base_chinese(), modules=(*whole, *rows), findings=())


def test_layers_of_equal_figures_are_one_row_with_how_many_and_how_much_each():
    [heading, row] = table(large(5625, lambda _n: 1000), depth=2)
    assert heading.split() == ["module", "stored", "expected", "share"]
    assert re.split(" {2,}", row)[:4] == ["h.{0-5624}", "5,625,000", "=", "100.0%"]
    assert row.endswith("  5,625 x 1,000")
    rows = table(large(12, lambda n: 1000 + (n == 3)), depth=2)
    assert [line.split()[0] for line in rows[1:]] == ["h.{0-2,4-11}", "h.3"]


def test_a_row_has_its_number_of_layers():
    [_, row] = table(large(32, lambda _n: 1000), depth=1)
    assert row.endswith("  32 x 1,000")
    [_, row] = table(large(32, lambda n: 1000 + 7 * (n > 2)), depth=1)
    assert row.endswith("  3 x 1,000 + 29 x 1,007")
    [_, row] = table(large(32, lambda n: 1000 + n), depth=1)
    assert row.endswith("  32 layers")


def test_the_own_tensors_of_a_module_are_a_row():
    report = replace(
        bert_base_chinese(),
        findings=(),
        modules=(
            row("", 3, 12, 12, "equal", of=12),
            row("body", 1, 7, 7, "equal", of=12),
            row("scale", 1, 2, 2, "equal", of=12),
        ),
    )
    rows = [re.split(" {2,}", line)[:2] for line in table(report)[1:]]
    assert rows == [["(itself)", "3"], ["body", "7"], ["scale", "2"]]


@pytest.mark.slow
def test_a_model_of_which_every_layer_differs_has_few_rows_that_add_up():
    report = large(5625, lambda n: 1000 + n)
    rows = [re.split(" {2,}", line) for line in table(report)[1:]]
    assert len(rows) == 12
    assert rows[-1][0] == "and 5,614 more"
    stored = sum(int(one[1].replace(",", "")) for one in rows)
    assert stored == sum(1000 + n for n in range(5625))
    assert len(table(report, verbose=True)) == 1 + 2 + 5625


def test_nothing_else_is_wrong_only_where_nothing_is_left():
    report = EXAMPLES["diagnosed"]()
    [cause] = report.diagnosis
    of_all = replace(cause, explains="all 3 names", findings=(0, 1), remaining=0)
    sentence = "nothing else is wrong"
    assert sentence in render(replace(report, diagnosis=(of_all,)))
    assert sentence not in render(report)
    others = {
        "parts": (replace(gated(), component="unet"),),
        "diagnosis": (replace(of_all, remaining=1),),
        "findings": (*report.findings, BadHeader(file="x", reason="the header is not JSON")),
        "ignored": (report.findings[1],),
    }
    for name, value in others.items():
        assert sentence not in render(replace(report, **{"diagnosis": (of_all,), name: value}))
    unasked = replace(of_all, remaining=None)  # no audit of the changed snapshot
    assert sentence not in render(replace(report, diagnosis=(unasked,)))
    two = (of_all, replace(of_all, cause="other-class"))
    assert sentence not in render(replace(report, diagnosis=two))


def test_the_closing_table_has_the_worst_last_and_says_what_to_do():
    outcomes = [EXAMPLES["diagnosed"](), gated(), bert_base_chinese()]
    rows = [terminal.closing_row(one) for one in outcomes]
    shown = lines_text(terminal.closing_table(rows, 120)).splitlines()
    assert [row.split("  ")[0] for row in shown[1:]] == [
        "google-bert/bert-base-chinese",
        gated().requested,
        "org/short",
    ]
    assert shown[-1].endswith("set num_hidden_layers to 3 in config.json")
    command = FixCommand(command="audit fix short --apply", effect="")
    row = terminal.closing_row(replace(outcomes[0], fix_command=command))
    assert row.cause.endswith("\N{RIGHTWARDS ARROW} audit fix short --apply")


def test_a_line_of_a_model_fits_the_terminal_and_begins_with_the_verdict(subtests):
    for width in [40, 80, 200]:
        with subtests.test(width=width):
            for make in EXAMPLES.values():
                [line] = lines_text([terminal.one_line(make(), width, 500)]).splitlines()
                assert cells_of(line) <= width
                assert line.startswith(word(make())[0])


def test_the_row_of_a_repository_names_the_first_component_that_is_not_clean():
    whole = EXAMPLES["pipeline"]()
    bad = next(part for part in whole.parts if part.verdict != "clean")
    assert terminal.closing_row(whole).cause.startswith(f"{bad.component}: ")


def test_the_terms_of_an_account_add_up():
    """Law 3, as people read it."""
    unexplained = replace(bert_base_chinese(), findings=(), residual=592_130)
    assert "fault of this" in render(unexplained)
    for outcome in (unexplained, *(make() for make in EXAMPLES.values())):
        terms, equal, rest = account(outcome).partition(" = ")
        if equal:
            numbers = [int(one.replace(",", "")) for one in re.findall(r"[\d,]*\d", terms)]
            assert sum(numbers) == int(rest.split()[0].replace(",", ""))


def test_an_account_without_a_stored_parameter_says_nothing_of_their_use(subtests):
    for finding, accounted in [
        (Missing(tensors=(EXPECTED,), reason=""), "0 parameters stored; 6 expected (6 missing)"),
        (
            BadHeader(file="a", reason="", hidden=(EXPECTED,)),
            "0 parameters read; 6 expected (6 not read)",
        ),
    ]:
        with subtests.test(finding=finding, accounted=accounted):
            outcome = EXAMPLES["bert-base-chinese"]()
            empty = replace(
                outcome,
                observed=replace(outcome.observed, parameters=0),
                expected=replace(outcome.expected, parameters=6),
                findings=(finding,),
                residual=0,
            )
            assert account(empty) == accounted
