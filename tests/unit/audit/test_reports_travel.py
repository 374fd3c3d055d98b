"""Reports of another process: auditor.audit in a pool, or behind a queue."""

import copy
import pickle
from multiprocessing import get_context

import pytest
from support.outcomes.examples import EXAMPLES

import auditor

NAMES = ("bert-base-chinese", "bert-base-cased")


def audited(model: str):
    return auditor.audit(model, source="bundled")


@pytest.mark.parametrize("name", EXAMPLES)
def test_an_outcome_is_the_same_behind_pickle(name):
    outcome = EXAMPLES[name]()
    assert pickle.loads(pickle.dumps(outcome)) == outcome  # noqa: S301 - our own
    assert copy.deepcopy(outcome) == outcome


def test_a_table_of_tensors_takes_its_rows_along():
    report = audited(NAMES[0])
    there = pickle.loads(pickle.dumps(report))  # noqa: S301 - our own
    assert there == report
    assert there.to_json() == report.to_json()
    assert list(there.tensors.rows()) == list(report.tensors.rows())


def test_a_pool_of_processes_audits():
    with get_context("spawn").Pool(1) as pool:
        found = pool.map(audited, NAMES)
    assert [one.to_json() for one in found] == [audited(name).to_json() for name in NAMES]
