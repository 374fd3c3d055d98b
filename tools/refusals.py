"""Ask the library and us which of many spoilt configs can be built: `make refusals`.

Prints how many both refuse, the library alone (what we expect something of without a word) and we
alone (a false alarm), by model type with `-v`, and examples of the last two. Ends with 1 where one
of ours is false, or more than 2 % of the library's are silent.
"""

import argparse
import json
import sys
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import StrEnum
from random import Random
from typing import Any

from mutated_configs import Values, examples, mutated

from auditor.analytic import Config, catalogue
from auditor.analytic.config_classes import FaultyConfigError, fault_sentence
from auditor.errors import CheckpointError, SourceError
from auditor.oracle import build
from auditor.oracle.client import Process

PAPERS = frozenset({"transformer-2017"})  # models that transformers does not have
MODEL_TYPES = [each for each in catalogue.model_types() if each not in PAPERS]
MOST_SILENT = 0.02
_SECONDS = 20  # for one config, of which those that are built take a tenth of one
_COMMAND = (  # what takes long for reasons of its own is imported before the first question
    "import torch, transformers; from auditor.oracle import server; server.MOST_SECONDS = {}; "
    "transformers.AutoModel; server.serve()"
)


class Verdict(StrEnum):
    """Who refuses a config."""

    NEITHER = "taken by both"
    BOTH = "refused by both"
    LIBRARY = "refused by the library alone"
    US = "refused by us alone"
    UNKNOWN = "of a shape that we do not know, and say so"
    UNJUDGED = "not judged: too large, or what the library needs is not here"


@dataclass(frozen=True, kw_only=True)
class Case:
    """A config, and what is said of it."""

    model_type: str
    target: str
    values: Values
    change: str
    theirs: str | None  # why the library refuses it; None: it does not
    ours: tuple[str, ...]
    verdict: Verdict

    def __str__(self) -> str:
        said = self.theirs if self.verdict is Verdict.LIBRARY else "; ".join(self.ours)
        return f"{self.model_type} {self.target} ({self.change}): {said}"


def judge() -> Process:
    """The library, in a process of its own."""
    return Process((sys.executable, "-P", "-c", _COMMAND.format(_SECONDS)))


def cases(
    library: Process, model_type: str, number: int, count: int, *, bases: int = 6
) -> Iterator[Case]:
    """So many changed configs of classes of that type; `number`: which of the possible draws."""
    import transformers  # noqa: PLC0415 - seconds

    draw = Random(f"{number}-{model_type}")
    names = catalogue.siblings(model_type)
    known: dict[str, list[Values]] = {}
    for _ in range(count):
        target = draw.choice(names)
        if target not in known:
            known[target] = examples(model_type, target, number, bases)
        config_class = getattr(transformers, target).config_class
        values, change = mutated(draw, known[target], config_class)
        yield judged(library, values | {"model_type": model_type}, target, change)


def judged(library: Process, values: Values, target: str, change: str = "") -> Case:
    try:
        theirs = _theirs(library, values, target)
    except (SourceError, CheckpointError) as error:
        theirs, verdict = str(error), Verdict.UNJUDGED
    else:
        verdict = None
    try:
        ours = refusals(values, target)
    except SourceError as error:
        ours, verdict = (str(error),), verdict or Verdict.UNKNOWN
    pairs = {
        (False, False): Verdict.NEITHER,
        (True, True): Verdict.BOTH,
        (True, False): Verdict.LIBRARY,
        (False, True): Verdict.US,
    }
    return Case(
        model_type=str(values["model_type"]),
        target=target,
        values=values,
        change=change,
        theirs=theirs,
        ours=ours,
        verdict=verdict or pairs[theirs is not None, bool(ours)],
    )


def refusals(values: Values, target: str) -> tuple[str, ...]:
    """Why we refuse the config: as many sentences as there are causes."""
    try:
        found = catalogue.expect(Config(values=values), target)
    except FaultyConfigError as error:
        return tuple(fault_sentence(fault, target) for fault in error.faults)
    except CheckpointError as error:
        return (str(error),)
    return tuple(fault_sentence(fault, target) for fault in found.faults)


def _theirs(library: Process, values: Values, target: str) -> str | None:
    """Why the library refuses the config; CheckpointError for what it is not asked to build."""
    build._checked(values)
    answer: Any = library.ask(json.dumps([target, values]), target)
    return answer.get("fault") if isinstance(answer, dict) else None


def summary(found: Iterable[Case], *, examples_each: int = 10) -> str:
    """Who refused how many, with examples of those on which we and the library differ."""
    cases = list(found)
    counted = Counter(case.verdict for case in cases)
    lines = [f"{counted[verdict]:>8,}  {verdict}" for verdict in Verdict]
    for verdict in (Verdict.LIBRARY, Verdict.US):
        those = [case for case in cases if case.verdict is verdict]
        lines += [f"\n{verdict}:"] * bool(those) + [f"  {case}" for case in those[:examples_each]]
    lines.append(f"\nsilent: {silent(counted):.2%} of what the library refuses")
    return "\n".join(lines)


def silent(counted: Counter[Verdict]) -> float:
    """The share of what the library refuses, and we judge, of which we say nothing."""
    refused = counted[Verdict.BOTH] + counted[Verdict.LIBRARY]
    return counted[Verdict.LIBRARY] / refused if refused else 0.0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=100, help="configs of each model type")
    parser.add_argument("--seed", type=int, nargs="+", default=[1], help="which draws, one or more")
    parser.add_argument("--types", nargs="+", default=MODEL_TYPES, help="model types; all")
    parser.add_argument("-v", "--verbose", action="store_true", help="a line for each model type")
    asked = parser.parse_args()
    library, found = judge(), []
    for number in asked.seed:
        for model_type in asked.types:
            of_type = list(cases(library, model_type, number, asked.count))
            found += of_type
            if asked.verbose:
                counted = Counter(str(case.verdict.name) for case in of_type)
                sys.stderr.write(f"{number} {model_type} {dict(counted)}\n")
    library.end()
    sys.stdout.write(f"{summary(found, examples_each=40)}\n")
    counted = Counter(case.verdict for case in found)
    return int(counted[Verdict.US] > 0 or silent(counted) > MOST_SILENT)


if __name__ == "__main__":
    sys.exit(main())
