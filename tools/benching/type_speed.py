"""Processor time of a claim and of `audit explain` for every model type, slowest first.

A claim is timed from the config to the verdict: of each type the default config of its class is
judged by three counts that no slip explains soon (a third of the true one, one less than it, and a
rounded one), and by one of the encoder. `audit explain TYPE` is a whole process, the shortest of
RUNS runs. The program ends with 1 if one is above its limit. Words are model types; types whose
defaults make no model (no vocabulary) are given what STATED has, or named.
"""

import os
import sys
import time
from collections.abc import Iterator, Mapping

from support.published_configs import VALUES

from auditor.analytic import Config, catalogue
from auditor.claims.judge import judge
from auditor.claims.subject import subject_of
from auditor.errors import CheckpointError

STATED = {"esm": {"vocab_size": 33}, "lfm2_moe": VALUES["LiquidAI/LFM2-8B-A1B"]}
MOST_OF_CLAIM, MOST_OF_EXPLAIN = 1.0, 0.3  # seconds of processor time
RUNS = 5
SHOWN = 10
ANSWERS = {0, 1}  # 1: of the defaults of the class no model can be built, and why is said


def claims_of(parameters: int) -> Iterator[tuple[str, str]]:
    yield str(parameters // 3 + 1), ""
    yield str(parameters - 1), ""
    yield f"{parameters * 7 // 5 // 10**6}.7M", ""
    yield str(parameters // 2 + 7), "attention"


def seconds_of_claim(model_type: str) -> float:
    """The slowest claim's; CheckpointError where no model follows."""
    target = catalogue.base_class(model_type)
    values = {"model_type": model_type, **STATED.get(model_type, {})}
    slowest = 0.0
    for text, part in claims_of(catalogue.expect(Config(values=values), target).parameters):
        since = time.process_time()
        config = Config(values=values)
        judge(subject_of(target, catalogue.expect(config, target), config), text, part)
        slowest = max(slowest, time.process_time() - since)
    return slowest


def seconds_of_explain(model_type: str) -> float:
    """Of one run; OSError where it ends otherwise than with an answer."""
    own = {key: value for key, value in os.environ.items() if key != "PYTHONDONTWRITEBYTECODE"}
    to = [(os.POSIX_SPAWN_OPEN, each, os.devnull, os.O_WRONLY, 0) for each in (1, 2)]
    command = [sys.executable, "-m", "auditor", "explain", model_type]
    child = os.posix_spawn(sys.executable, command, own, file_actions=to)
    _, status, used = os.wait4(child, 0)
    if os.waitstatus_to_exitcode(status) not in ANSWERS:
        raise OSError(f"{' '.join(command[1:])} ended with {os.waitstatus_to_exitcode(status)}")
    return used.ru_utime + used.ru_stime


def is_slow(of: str, seconds_by_type: Mapping[str, float], most: float) -> bool:
    """Print the slowest types, and return whether one takes more than it may."""
    by_time = sorted(seconds_by_type.items(), key=lambda pair: -pair[1])
    for model_type, took in by_time[:SHOWN]:
        print(f"{took:6.3f} s  {of} {model_type}")
    slow = sum(took > most for _, took in by_time)
    print(f"{of}: {len(by_time)} model types, {slow} take more than {most} s")
    return slow > 0


def main() -> int:
    types = sys.argv[1:] or catalogue.model_types()
    claims: dict[str, float] = {}
    for model_type in types:
        try:
            claims[model_type] = seconds_of_claim(model_type)
        except CheckpointError:
            print(f"no model follows from the defaults of {model_type}")
    explained = dict.fromkeys(types, float("inf"))
    for _ in range(RUNS):  # in rounds: what else the machine does slows all of them alike
        for model_type in types:
            explained[model_type] = min(explained[model_type], seconds_of_explain(model_type))
    slow_claims = is_slow("claim", claims, MOST_OF_CLAIM)
    return slow_claims | is_slow("explain", explained, MOST_OF_EXPLAIN)
