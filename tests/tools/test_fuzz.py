"""The fuzzers of tools/fuzz: a short run of each; a case can be had again by its number."""

import sys

import pytest
from fuzz import run
from fuzz.target import READ, case_of

# What the torch laws come to is in containers/test_torch_law.py, with more cases.
SHORT = {"safetensors": 2000, "gguf": 500, "indexes": 1000, "configs": 200}


def target(name: str):
    needs = {"gguf": "gguf", "torch-files": "torch", "torch-pickles": "torch"}
    if name in needs:
        pytest.importorskip(needs[name], reason="the judge")
    return run.target_of(name)


def test_the_law_holds_over_a_few_cases(subtests):
    for name, most in SHORT.items():
        with subtests.test(name=name):
            law = target(name)
            verdicts = [(number, law.judge(case_of(law, 1, number))) for number in range(most)]
            assert [(number, verdict) for number, verdict in verdicts if verdict.fault] == []
            assert any(verdict.kind == READ for _, verdict in verdicts)
            assert any(verdict.kind != READ for _, verdict in verdicts)


def test_a_case_is_made_again_by_its_seed_and_its_number(subtests):
    for name in run.TARGETS:
        with subtests.test(name=name):
            law = target(name)
            assert [case_of(law, 3, n) for n in range(9)] == [case_of(law, 3, n) for n in range(9)]
            assert [case_of(law, 3, n) for n in range(9)] != [case_of(law, 4, n) for n in range(9)]


def test_the_program_prints_the_verdict(monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["fuzz", "indexes", "--only", "7"])
    assert run.main() == 0
    assert capsys.readouterr().out.startswith("indexes 7: ")


def test_a_broken_law_is_a_fault_of_the_case():
    law = target("indexes")._replace(judge=lambda _: 1 / 0)
    assert run.judged(law, b"") == ("raised", "raises ZeroDivisionError: division by zero")
