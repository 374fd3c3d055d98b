"""Faults in the numbers of checkpoints, and what `--values` says.

By cause: how many were planted, flagged with the right severity, named, and named alone; and of how
many sound checkpoints anything is said.

`--sampled` serves larger checkpoints from a Hub on loopback and audits what a sample of at most 8
requests and 0.6 MB shows: `seen` are the faults of which some number was in the sample, and only
those can be named. Twice, for files that are on the Hub itself and for files behind redirects,
which halve the reads.

`--trained` trains small models of 23 architectures for a hundred steps each, in some minutes, and
plants the same faults in their numbers; `--seed 7` draws other models.
"""

import json
import shutil
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import torch
from huggingface_hub import constants
from safetensors.torch import load_file
from support.hub import Hub
from support.sampled_faults import (
    BASE_OF_ADAPTERS,
    MODELS,
    SampledCase,
    adapter_cases_to_sample,
    sampled_cases,
)
from support.value_causes import causes_of
from support.value_faults import WEIGHTS, ValueCase, all_cases, cases_of
from support.value_files import write_numbers

import auditor
from auditor.report import Outcome
from diagnosing.tally import COLUMNS, Tally, is_verbose

SAMPLED_COLUMNS = ("planted", "seen", "named", "alone")


def main() -> None:
    sampled = "--sampled" in sys.argv
    every = all_sampled if sampled else all_trained if "--trained" in sys.argv else all_whole
    table = Tally(SAMPLED_COLUMNS if sampled else COLUMNS)
    with tempfile.TemporaryDirectory() as place:
        for case, outcome in every(Path(place)):
            if case.cause is None:
                is_alarmed = outcome.verdict == "findings" or bool(causes_of(outcome))
                table.add_sound(is_alarmed=is_alarmed)
                if is_alarmed and is_verbose():
                    print(f"{case.name}: {outcome.verdict} {causes_of(outcome)}")
                continue
            found = judged_sample(case, outcome) if sampled else judged(case, outcome)
            table.add(case.cause, found)
    table.print()


def all_whole(place: Path) -> Iterator[tuple[ValueCase, Outcome]]:
    for case in all_cases(place):
        yield case, auditor.audit(str(case.folder), values=True)


def all_trained(place: Path) -> Iterator[tuple[ValueCase, Outcome]]:
    from support.trained_models import MODELS, train  # noqa: PLC0415 - takes seconds

    seed = int(sys.argv[sys.argv.index("--seed") + 1]) if "--seed" in sys.argv else 0
    torch.set_num_threads(1)
    for at, name in enumerate(MODELS):
        fresh, trained = train(name, place, 1000 * seed + at)
        states = [load_file(folder / WEIGHTS) for folder in (fresh, trained)]
        for case in cases_of(trained, *states, place / "cases"):
            yield case, auditor.audit(str(case.folder), values=True)
            shutil.rmtree(case.folder)


def all_sampled(place: Path) -> Iterator[tuple[SampledCase, Outcome]]:
    """Each case, sampled from a Hub that sends its files itself, and from one that redirects."""
    with serving_hub() as hub:
        hub.add("org/base", {"config.json": json.dumps(BASE_OF_ADAPTERS)})
        for seed, name in enumerate(MODELS):
            for case in sampled_cases(name, seed):
                yield from sampled_outcomes(hub, case, place)
        for case in adapter_cases_to_sample():
            yield from sampled_outcomes(hub, case, place)


@contextmanager
def serving_hub() -> Iterator[Hub]:
    """A Hub on loopback, the only one that this process knows."""
    known = constants.ENDPOINT
    with Hub() as hub:
        constants.ENDPOINT = hub.url
        try:
            yield hub
        finally:
            constants.ENDPOINT = known


def sampled_outcomes(
    hub: Hub, case: SampledCase, place: Path
) -> Iterator[tuple[SampledCase, Outcome]]:
    weights = "adapter_model.safetensors" if case.adapter else "model.safetensors"
    config = "adapter_config.json" if case.adapter else "config.json"
    path = write_numbers(place / weights, dict(case.tensors))
    files = {config: json.dumps(case.config), weights: path, **case.others}
    for label, lfs in (("plain", ()), ("redirected", (weights,))):
        model = f"org/m{abs(hash((case.name, label))):x}"
        hub.add(model, files, lfs=lfs)
        yield case, auditor.audit(model, values=True)
    path.unlink()


def judged(case: ValueCase, outcome: Outcome) -> tuple[str, ...]:
    found = causes_of(outcome)  # a fresh model has `untrained` beside what was planted in it
    causes = [one for one in found if one[0] == case.cause or one[0] != "untrained"]
    if is_verbose() and causes != [(case.cause, case.severity)]:
        print(f"{case.name}: {causes}, not {case.cause}")
    if case.severity != "info" and outcome.verdict == "clean":
        return COLUMNS[:1]
    named = case.is_named(outcome.findings)
    return COLUMNS if named and len(causes) == 1 else COLUMNS[: 2 + named]


def judged_sample(case: SampledCase, outcome: Outcome) -> tuple[str, ...]:
    causes = causes_of(outcome)
    read = {one.name for one in outcome.values.tensors} if outcome.values else set()
    if case.changed and not read.intersection(case.changed):
        return SAMPLED_COLUMNS[: 1 + 2 * bool(causes)]
    if is_verbose() and causes != [(case.cause, case.severity)]:
        print(f"{case.name}: {causes}, not {case.cause}")
    named = (case.cause, case.severity) in causes
    return SAMPLED_COLUMNS if named and len(causes) == 1 else SAMPLED_COLUMNS[: 2 + named]
