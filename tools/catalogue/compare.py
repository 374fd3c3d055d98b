"""Compare learned forms with the closed forms by hand, over drawn and published configs."""

import json
from collections import Counter
from collections.abc import Iterator, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
from hypothesis import HealthCheck, Phase, given, seed, settings
from support.bert_configs import config_of
from support.published_configs import VALUES as PUBLISHED

from auditor.analytic import Expectation, catalogue, generated
from auditor.analytic.config import Config
from auditor.analytic.config_classes import FaultyConfigError
from auditor.analytic.conversions import class_memory
from auditor.analytic.families import FILES
from auditor.analytic.generated.form import Form
from auditor.errors import CheckpointError, SourceError
from catalogue.pack import hidden_keys, work_file


class Row(NamedTuple):
    """How often the form of a class equals its family, and the keys of what it refuses."""

    model_type: str
    target: str
    equal: int
    wrong: int
    outside: Counter[str]
    first: str  # the first config for which the form is wrong

    def line(self) -> str:
        refused = ", ".join(f"{key} {count}" for key, count in self.outside.most_common(5))
        counts = f"{self.equal:5} equal {self.outside.total():5} outside {self.wrong:4} wrong"
        return f"{self.model_type:24} {self.target:44} {counts}  {refused} {self.first}".rstrip()


def compared(work: Path, types: Sequence[str], count: int) -> Iterator[Row]:
    """Yield a row for each class of these types, or of all, that was learned."""
    for model_type in types or FILES:
        for target in catalogue.siblings(model_type):
            path = work_file(work, model_type, target)
            result = json.loads(path.read_text()) if path.exists() else {}
            if "form" in result:
                yield _row(model_type, target, result["form"], count)
            elif result:
                yield Row(model_type, target, 0, 0, Counter([result["failed"][:60]]), "")


def _row(model_type: str, target: str, data: dict[str, Any], count: int) -> Row:
    form = msgspec.convert({**data, "hidden": hidden_keys(data)}, Form)
    equal, outside, wrong = 0, Counter[str](), list[str]()
    for values in drawn(model_type, target, count):
        config = config_of(**values, model_type=model_type)
        try:
            expected = catalogue.expect(config, target)
        except (FaultyConfigError, CheckpointError, SourceError):
            continue
        if expected.faults:
            continue
        try:
            differences = differing(expected, form, config)
        except SourceError as error:
            outside[str(error).partition(" for ")[2].partition(" ")[0]] += 1
            continue
        equal += not differences
        if differences:
            wrong.append(f"{differences[:3]} of {json.dumps(values)}")
    return Row(model_type, target, equal, len(wrong), outside, wrong[0] if wrong else "")


def drawn(model_type: str, target: str, count: int) -> list[dict[str, Any]]:
    """Return configs of the type's strategy, and the published ones of the type."""
    strategies = import_module(f"support.strategies.{FILES[model_type]}").VALUES
    found = [values for values in PUBLISHED.values() if values.get("model_type") == model_type]

    @seed(1)
    @settings(
        max_examples=count, database=None, deadline=None, phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )  # fmt: skip
    @given(strategies.get(target, strategies[model_type]))
    def keep(values: dict[str, Any]) -> None:
        found.append(dict(values))

    keep()
    return [{k: v for k, v in values.items() if k != "model_type"} for values in found]


def differing(expected: Expectation, form: Form, config: Config) -> list[str]:
    """Return the names, or the parts of the loading rules, in which form and family differ."""
    ours = generated.expect_form(config, form)
    sides = [{one.name: one for one in each.tensors} for each in (ours, expected)]
    names = {name for name in {*sides[0], *sides[1]} if sides[0].get(name) != sides[1].get(name)}
    rules, theirs = ours.loading, expected.loading
    parts = ("renames", "legacy", "converters")
    names |= {each for each in parts if getattr(rules, each) != getattr(theirs, each)}
    sets = ("silent", "buffers", "unmissed")
    names |= {each for each in sets if set(getattr(rules, each)) != set(getattr(theirs, each))}
    active = [each.active and each.active.parameters for each in (ours, expected)]
    names |= {"active experts"} if active[0] != active[1] else set()
    memories = [dict(class_memory(each).ties) for each in (ours, expected)]
    return sorted(names | ({"ties in memory"} if memories[0] != memories[1] else set()))
