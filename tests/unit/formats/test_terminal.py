"""The text for people: safe, narrow, short, and the same wherever it is made."""

import re
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.outcomes.clean_bert import bert_base_chinese
from support.outcomes.every_kind import every_kind
from support.outcomes.examples import EXAMPLES, gated, hostile
from support.outcomes.making import row, stored

from auditor.formats.terminal import render
from auditor.reconciler.findings import Unexpected

ANSI = re.compile(r"\x1b\[[0-9;]*m")
TEXT = st.text(st.characters(exclude_categories=()), min_size=1, max_size=30)


def blocks(outcome, **view):
    return render(outcome, **view).split("\n\n")


@given(TEXT, st.booleans())
def test_nothing_that_a_stranger_wrote_is_interpreted(text, verbose):
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


@pytest.mark.parametrize("name", EXAMPLES)
def test_colour_changes_nothing_but_colour(name):
    coloured = render(EXAMPLES[name](), color=True)
    plain = "".join(f"{line.rstrip()}\n" for line in ANSI.sub("", coloured).splitlines())
    assert coloured != plain == render(EXAMPLES[name]())


def test_markup_and_emoji_codes_stay_what_they_are():
    text = render(hostile(), verbose=True)
    assert "[bold]markup[/bold]" in text
    assert ":smile:" in text
    assert "\\x1b[31mred" in text


@pytest.mark.parametrize("width", [60, 80, 120])
@pytest.mark.parametrize("name", sorted(set(EXAMPLES) - {"hostile"}))
def test_every_line_but_the_verdict_fits_the_width(name, width):
    *lines, _verdict = render(EXAMPLES[name](), width=max(width, 80), depth=5).splitlines()
    assert max(map(len, lines)) <= max(width, 80)


def test_figures_are_never_cut_however_narrow_the_terminal():
    assert "102,882,442 100.0% 102,290,312   +592,130 differs" in render(
        bert_base_chinese(), width=30
    )


def test_a_long_prefix_is_cut_in_its_middle_and_only_where_it_must_be():
    assert "bert.encode….attention " in render(bert_base_chinese(), depth=5)
    assert "bert.encoder.layer.{0-11}.attention " in render(bert_base_chinese(), depth=5, width=100)


@pytest.mark.parametrize("variable", ["FORCE_COLOR", "NO_COLOR", "COLUMNS", "TERM", "LINES"])
def test_the_environment_does_not_leak_in(monkeypatch, variable):
    expected = render(bert_base_chinese()), render(bert_base_chinese(), color=True)
    monkeypatch.setenv(variable, "dumb" if variable == "TERM" else "23")
    assert (render(bert_base_chinese()), render(bert_base_chinese(), color=True)) == expected


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


def test_layers_of_equal_figures_are_one_row_with_the_sum_of_them():
    table = blocks(large(5625, lambda _n: 1000), depth=2)[1].splitlines()
    assert len(table) == 4
    assert re.split(" +", table[3]) == re.split(
        " +", "h.{0-5624} 90,000 5,625,000 100.0% 5,625,000 0 equal"
    )


def test_layers_that_differ_are_rows_of_their_own():
    table = blocks(large(12, lambda n: 1000 + (n == 3)), depth=2)[1].splitlines()
    assert [line.split()[0] for line in table[3:]] == ["h.{0-2,4-11}", "h.3"]


@pytest.mark.slow
def test_a_model_of_which_every_layer_differs_ends_with_how_many_rows_there_are():
    report = large(5625, lambda n: 1000 + n)
    assert blocks(report)[1].splitlines()[-1] == "and 5,567 rows more"
    assert len(blocks(report, verbose=True)[1].splitlines()) == 1 + 2 + 5625


def test_depth_nought_is_the_whole_model_alone():
    table = blocks(bert_base_chinese(), depth=0)[1].splitlines()
    assert [line.split()[0] for line in table] == ["module", "(whole"]


def test_errors_come_before_warnings_before_infos():
    headings = re.findall(r"^(error|warning|info): ", render(every_kind()), re.MULTILINE)
    assert headings == ["error"] * 13 + ["warning"] * 11 + ["info"] * 10


def test_many_names_end_with_how_many_there_are():
    names = [f"{letter}.{letter * 2}{letter}x" + "." * at for at, letter in enumerate("abcdefghij")]
    found = Unexpected(tensors=tuple(stored(name, 1) for name in names), reason="no class has it")
    report = replace(every_kind(), findings=(found,))
    assert "    and 4 more of such names\n" in render(report)
    assert all(name in render(report, verbose=True) for name in names)


CLEAN = "clean: 206 tensors, 102,882,442 parameters stored, 102,290,312 expected"
UNEXPLAINED = replace(bert_base_chinese(), findings=(), residual=592_130)


@pytest.mark.parametrize(
    ("outcome", "terms"),
    [
        (bert_base_chinese(), (CLEAN, "592,130 unused", "residual 0")),
        (UNEXPLAINED, (CLEAN.replace("clean", "findings"), "residual 592,130")),
        (
            every_kind(),
            (
                "findings (13 errors, 11 warnings): 14 tensors",
                "45 parameters stored",
                "50 expected",
                "9 unused",
                "12 missing",
                "6 newly-initialized",
                "12 unexpected",
                "+2 mismatched",
                "10 behind bad-header",
                "residual 0",
            ),
        ),
        (gated(), (f"unaudited (gated): {gated().detail}",)),
        (EXAMPLES["names-alone"](), ("clean: 2 tensors", "12 expected", "no residual to compute")),
    ],
    ids=["clean", "residual", "findings", "unaudited", "names alone"],
)
def test_the_last_line_is_the_verdict(outcome, terms):
    assert render(outcome).splitlines()[-1] == ", ".join(terms)


def test_a_config_alone_shows_the_expected_side_with_its_formulas():
    table = blocks(EXAMPLES["config-alone"]())[1].splitlines()
    assert table == [
        "module           expected formula",
        "(whole model)  85,054,464 12*D^2 + 13*D",
        "encoder        85,054,464 N*(12*D^2 + 13*D)",
        "encoder.{0-11} 85,054,464 12 x (12*D^2 + 13*D)",
    ]


def test_who_spoke_is_named_with_the_library_and_its_version():
    assert "in 202 tensors, by the closed form\n" in render(bert_base_chinese())
    text = render(every_kind())
    assert "50 parameters in 9 tensors, by the oracle (transformers 5.23.0)\n" in text
    assert "\nformula " not in text  # the oracle has none


def test_the_source_is_named_where_it_is_not_the_hub():
    assert "source     bundled: rebuilt from names" in render(bert_base_chinese())
    assert "source" not in render(every_kind())
