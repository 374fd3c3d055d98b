"""Chat templates of untrusted models are parsed, in time that grows with their length alone."""

import re
from time import perf_counter

import pytest

from auditor.companions.chat_template import (
    END,
    MOST_CHARACTERS,
    NotCheckedError,
    Turns,
    read_template,
    read_templates,
)

pytest.importorskip("jinja2", reason="parses the templates")


def test_a_template_is_parsed_and_not_rendered(subtests):
    for text in [
        "{% for m in messages %}{% generation %}{{ m.content }}{% endgeneration %}{% endfor %}",
        "{% for m in messages %}{% if m %}{% continue %}{% endif %}{% break %}{% endfor %}",
        "{{ raise_exception('never') }}{{ strftime_now('%d') }}{{ tools | tojson(indent=4) }}",
        "{% for a in range(10**9) %}{% for b in range(10**9) %}{{ b }}{% endfor %}{% endfor %}",
        "{{ '" + "(" * 100 + "' }}",
        "{{ x }}" * 7_000,
    ]:
        with subtests.test(text=text):
            assert isinstance(read_template(text), Turns)


def test_a_template_that_does_not_parse_has_the_fault_that_jinja2_reports(subtests):
    for text, fault in [
        ("\n{{ a }", "line 2: unexpected '}'"),
        ("{{ 'a }}", "line 1: unexpected char"),
        ("{% if x %}", "line 1: Unexpected end of template"),
        ("{{ " + "9" * 5_000 + " }}", "one of its literals cannot be read: "),
    ]:
        with subtests.test(text=text):
            assert str(read_template(text)).startswith(fault)


def test_a_template_that_is_nested_too_deeply_is_not_checked(subtests):
    for text in [
        "{" * 40_000,
        "{{ " + "(" * 20_000 + " }}",
        "{{ " + "not " * 10_000 + "a }}",
        "{% for a in b %}" * 3_000,
        "{{ a if b else " * 3_000,
        "{{ " + " + ".join("a" * 12_000) + " }}",
        "{{ a" + ".b" * 20_000 + " }}",
    ]:
        with subtests.test(text=text):
            before = perf_counter()
            with pytest.raises(NotCheckedError, match="is nested too deeply"):
                read_template(text)
            assert perf_counter() - before < 5


def test_a_long_template_is_read_in_a_moment(subtests):
    for text in [
        "{{ '" + "\\'" * 24_000,
        "{{ '" + '"' * 48_000,
        "{% raw %}" * 5_000,
        " " * 47_000 + "{%-",
    ]:
        with subtests.test(text=text):
            before = perf_counter()
            read_template(text)
            assert perf_counter() - before < 5


def test_the_templates_of_one_model_are_bounded_together():
    texts = ["a" * 30_000, "b" * 30_000, "{{ a }"]
    long, longer, short = read_templates(texts).values()
    assert isinstance(long, Turns)
    assert str(longer) == "has 30,000 characters, 60,000 with others, expected at most 50,000"
    assert str(short).startswith("line 1: ")
    with pytest.raises(NotCheckedError, match=re.escape("has 50,001 characters, expected at most")):
        read_template("x" * (MOST_CHARACTERS + 1))


def test_a_branch_is_read_unless_its_test_is_false_for_an_assistant(subtests):
    for test, ends in [
        ("m.role == 'assistant'", {"A"}),
        ("m['role'] != 'assistant'", {"B"}),
        ("m.role in ['user', 'assistant'] and not add_generation_prompt", {"A"}),
        ("m.role not in ['user'] or m.tools", {"A"}),
        ("not (m.role == 'assistant' and m.tools)", {"A", "B"}),
        ("m.role == 'user' or add_generation_prompt", {"B"}),
        ("m.tools", {"A", "B"}),
    ]:
        with subtests.test(test=test):
            text = "{% for m in messages %}{% if TEST %}A{% else %}B{% endif %}{% endfor %}"
            assert read_template(text.replace("TEST", test)).ends == ends


def test_the_end_of_a_turn_is_the_last_text_that_is_written(subtests):
    for body, ends in [
        ("{{ m.content + eos_token }}", {END}),
        ("{{ m.content | trim ~ '<e>' }}{% set x = 'y' %}", {"<e>"}),
        ("{{ '<a>' if m.x else '<b>' }}\n", {"<a>", "<b>"}),
        ("<e>{{ raise_exception('no') }}", set()),
        ("<e>{% for call in m.calls %}<c>{% endfor %}", {"<c>"}),
        ("{{ m.content }}", set()),
    ]:
        with subtests.test(body=body):
            text = "{% for m in messages %}BODY{% endfor %}".replace("BODY", body)
            assert read_template(text).ends == ends
