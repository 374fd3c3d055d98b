"""Claims about published models: right ones, ones with a publisher's slip, and invented ones.

Expected is `confirmed`, `none` (refuted, and no slip explains it), or one of the slips of the first
explanation; the numbers follow from the models' cards, papers and configs, not from the judge.
"""

import csv
import random
from functools import cache
from pathlib import Path

import pytest
from support.examples import one_in
from support.published_configs import VALUES

from auditor.analytic import Config, catalogue
from auditor.claims.judge import judge_all
from auditor.claims.subject import Subject, subject_of

CLAIMS = Path(__file__).parents[2] / "data" / "judged_claims.csv"
COUNTED = (
    ("Llama-3.2-1B", "LlamaForCausalLM"),
    ("bert-base-uncased", "BertModel"),
    ("gpt2", "GPT2LMHeadModel"),
    ("bart-large-cnn", "BartForConditionalGeneration"),
)


@cache
def subject(model: str, target: str, dtype: str) -> Subject:
    stated = {"model_type": catalogue.types(target)[0], **VALUES[model]}
    config = Config(values={**stated, "architectures": [target], "dtype": dtype})
    return subject_of(target, catalogue.expect(config, target), config)


def rows():
    with CLAIMS.open(encoding="utf-8") as file:
        return [tuple(row.values()) for row in csv.DictReader(file)]


def is_judged_as_expected(row) -> bool:
    model, target, dtype, part, text, expected = row
    verdict, *_ = judge_all(subject(model, target, dtype), [(text, part)])
    found = {verdict.verdict.partition(" ")[0]}
    if verdict.verdict == "refuted":
        first = verdict.explanations[0].slips if verdict.explanations else ()
        found = {slip.slip for slip in first} or {"none"}
    return bool(found.intersection(expected.split("|")))


def test_each_claim_gets_its_verdict_and_its_reason():
    assert [row for row in rows() if not is_judged_as_expected(row)] == []


@pytest.mark.slow
def test_a_number_that_nobody_counted_is_explained_by_nothing(subtests):
    for model, target in COUNTED:
        with subtests.test(model=model, target=target):
            draw = random.Random(f"{model} 2026")  # noqa: S311 - they are no secrets
            counted = subject(model, target, "bfloat16")
            total = catalogue.expect(counted.config, target).parameters
            numbers = [int(total * draw.uniform(0.5, 1.6)) for _ in range(10)]
            numbers += [total + draw.choice((-1, 1)) * draw.randint(1, 3000) for _ in range(10)]
            numbers = one_in(10, numbers)
            verdicts = judge_all(counted, [(str(number), "") for number in numbers])
            assert [verdict.explanations for verdict in verdicts] == [()] * len(numbers)
