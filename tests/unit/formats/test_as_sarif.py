"""--format sarif: the structure that code-scanning pages require, of single audits."""

import json
import tempfile
from pathlib import Path

from jsonschema import Draft202012Validator
from support.nightly_stores import THIRD, outcome_of, written
from support.outcomes.every_kind import every_kind
from support.outcomes.examples import EXAMPLES, diagnosed, pipeline
from support.sarif_schema import LOG

from auditor.formats import View
from auditor.formats.registry import FORMATS


def run_of(*outcomes):
    [text] = FORMATS["sarif"](outcomes, View()).values()
    log = json.loads(text.encode("ascii"))
    Draft202012Validator(LOG).validate(log)
    return log["runs"][0]


def test_what_alarms_is_a_result_and_what_is_ignored_is_suppressed(subtests):
    for name in ["every-kind", "hostile", "pipeline", "gated"]:
        with subtests.test(name=name):
            outcome = EXAMPLES[name]()
            results = run_of(outcome)["results"]
            every = outcome.every
            alarms = [one.kind for each in every for one in each.findings if one.severity != "info"]
            left_out = [
                one.kind for each in every for one in each.ignored if one.severity != "info"
            ]
            assert sorted(one["ruleId"] for one in results if not one["suppressions"]) == sorted(
                alarms
            )
            assert sorted(one["ruleId"] for one in results if one["suppressions"]) == sorted(
                left_out
            )
            rules = {rule["id"] for rule in run_of(outcome)["tool"]["driver"]["rules"]}
            assert {*alarms, *left_out} <= rules


def test_a_finding_has_the_same_fingerprint_in_a_night(subtests, tmp_path):
    """So that a code-scanning page takes both for the same."""
    for example in [every_kind, diagnosed, pipeline]:
        with subtests.test(example=example):
            place = Path(tempfile.mkdtemp(dir=tmp_path))
            path = place / "x.sarif"
            written(place, {THIRD: [outcome_of(example())]}, sarif=path)
            of_night = json.loads(path.read_bytes())["runs"][0]["results"]
            of_audit = [one for one in run_of(example())["results"] if not one["suppressions"]]

            def prints(results):
                return {one["partialFingerprints"]["primaryLocationLineHash"] for one in results}

            assert prints(of_night) == prints(of_audit)


def test_several_models_are_one_run():
    assert len(run_of(diagnosed(), pipeline())["results"]) == 4
