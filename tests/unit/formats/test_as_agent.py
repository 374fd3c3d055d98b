"""The line that --format agent prints for a model."""

import json

from support.outcomes.examples import EXAMPLES

from auditor.formats import View
from auditor.formats.registry import FORMATS


def lines(*names):
    [text] = FORMATS["agent"]([EXAMPLES[name]() for name in names], View()).values()
    return [json.loads(line) for line in text.splitlines()]


def test_a_line_has_verdict_cause_and_fix():
    clean, diagnosed, gated = lines("bert-base-chinese", "diagnosed", "gated")
    assert (clean["verdict"], clean["errors"], clean["cause"]) == ("clean", 0, None)
    first = EXAMPLES["diagnosed"]().diagnosis[0]
    assert (diagnosed["cause"], diagnosed["fix"]) == (first.cause, first.fix)
    assert (gated["verdict"], gated["reason"]) == ("unaudited", "gated")
