"""Runs targets in processes of their own, and prints what came of it."""

import argparse
import os
import sys
import time
from collections import Counter
from importlib import import_module
from multiprocessing import get_context
from multiprocessing.connection import Connection, wait

from fuzz.bounds import bounded_memory
from fuzz.target import Target, case_of

TARGETS = {
    "torch-pickles": "torch_law",
    "torch-files": "torch_law",
    "dcp": "dcp_law",
    "safetensors": "safetensors_law",
    "gguf": "gguf_law",
    "indexes": "json_laws",
    "configs": "json_laws",
    "formats": "formats_law",
}
_SHOWN = 10  # cases that break the law
_AT_ONCE = 200  # cases between two looks at the clock


def target_of(name: str) -> Target:
    found: dict[str, Target] = import_module(f"fuzz.{TARGETS[name]}").TARGETS
    return found[name]


def main() -> int:
    options = _options()
    broken = 0
    for name in options.targets or TARGETS:
        if options.only is not None:
            broken += _one(name, options)
        else:
            broken += _run(name, options)
    return 1 if broken else 0


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="fuzz", description=__doc__)
    parser.add_argument("targets", nargs="*", choices=[[], *TARGETS], metavar="TARGET")
    parser.add_argument("--seconds", type=float, default=60, help="for each target (60)")
    parser.add_argument("--runs", type=int, help="cases of each target, however long they take")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", type=int, help="the case of this number alone, and what it is")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    return parser.parse_args()


def _one(name: str, options: argparse.Namespace) -> int:
    target = target_of(name)
    content = case_of(target, options.seed, options.only)
    verdict = target.judge(content)
    print(f"{name} {options.only}: {len(content):,} bytes, {verdict}\n{content!r}")
    return int(verdict.fault is not None)


def _run(name: str, options: argparse.Namespace) -> int:
    """Cases are dealt to processes by their number, so that each can be made again alone."""
    began = time.monotonic()
    context = get_context("spawn")
    workers = []
    for place in range(options.jobs):
        here, there = context.Pipe(duplex=False)
        process = context.Process(target=_work, args=(name, place, options, there), daemon=True)
        process.start()
        there.close()
        workers.append((process, here))
    kinds, faults = _gathered(name, [pipe for _, pipe in workers])
    for process, _ in workers:
        process.join()
        if process.exitcode:
            faults.append(f"a process ended with exit code {process.exitcode}")
    taken, runs = time.monotonic() - began, sum(kinds.values())
    said = ", ".join(f"{count:,} {kind}" for kind, count in sorted(kinds.items()))
    print(f"{name}: {runs:,} cases in {taken:.0f} s, {len(faults):,} break the law ({said})")
    for fault in faults[:_SHOWN]:
        print(f"  {fault}")
    sys.stdout.flush()
    return len(faults)


def _gathered(name: str, pipes: list[Connection]) -> tuple[Counter[str], list[str]]:
    kinds: Counter[str] = Counter()
    faults: list[str] = []
    under_way: dict[Connection, int] = {}
    while pipes:
        for pipe in wait(pipes):
            assert isinstance(pipe, Connection)
            try:
                number, counted, found = pipe.recv()
            except EOFError:
                pipes.remove(pipe)
                if pipe in under_way:
                    faults.append(f"a process died after case {under_way[pipe]} of {name}")
                continue
            under_way[pipe] = number
            if number < 0:
                under_way.pop(pipe)
            kinds.update(counted)
            faults += found
    return kinds, faults


def _work(name: str, place: int, options: argparse.Namespace, pipe: Connection) -> None:
    target = target_of(name)
    target.judge(case_of(target, options.seed, 0))  # what is made once is made before the bound
    until = time.monotonic() + options.seconds
    number = place
    with bounded_memory():
        while number < options.runs if options.runs else time.monotonic() < until:
            counted: Counter[str] = Counter()
            found: list[str] = []
            for _ in range(_AT_ONCE):
                if options.runs and number >= options.runs:
                    break
                kind, fault = judged(target, case_of(target, options.seed, number))
                counted[kind] += 1
                if fault:
                    found.append(f"{name} {number}: {fault[:500]}")
                number += options.jobs
            pipe.send((number, counted, found))
    pipe.send((-1, Counter(), []))


def judged(target: Target, content: bytes) -> tuple[str, str | None]:
    try:
        kind, fault = target.judge(content)
    except Exception as error:  # noqa: BLE001 - whatever is raised breaks the law
        return "raised", f"raises {type(error).__name__}: {error}"
    return kind, fault
