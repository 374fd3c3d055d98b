"""Learn the classes of transformers or diffusers that have no closed form, and pack the forms.

The classes of a type are learned in a process of their own, the later ones with what the first one
showed. Results are kept in `--work`, so that a run that was stopped goes on where it was; a new
release of the library is learned from the start. `--pack` writes what was learned to
auditor/data/generated. `--by-hand` learns classes that have closed forms, and compares the two.
"""

import argparse
import gc
import itertools
import json
import os
import resource
import signal
import sys
import time
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import msgspec

from catalogue.pack import installed, pack, pairs, work_file

_WARM: dict[str, tuple[str, dict[str, Any]]] = {
    "transformers": ("BertModel", {"num_hidden_layers": 1}),
    "diffusers": ("DiTTransformer2DModel", {"num_layers": 1}),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "types", nargs="*", help="model types, or classes of diffusers, in this order; default: all"
    )
    parser.add_argument("--library", default="transformers", choices=("transformers", "diffusers"))
    parser.add_argument("--work", type=Path, default=Path("reports/catalogue"))
    parser.add_argument("--by-hand", type=int, default=0, metavar="N", help="compare N configs")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--limit", type=int, default=60, help="seconds of CPU for one class")
    parser.add_argument("--seconds", type=float, default=float("inf"), help="stop after so many")
    parser.add_argument("--again", action="store_true", help="learn again what has no form")
    parser.add_argument("--pack", action="store_true", help="learn nothing")
    arguments = parser.parse_args()
    if arguments.by_hand:
        arguments.work /= "by-hand"
    arguments.work.mkdir(parents=True, exist_ok=True)
    if not arguments.pack:
        learn_all(arguments)
    if arguments.by_hand:
        from catalogue.compare import compared  # noqa: PLC0415 - needs hypothesis

        for row in compared(arguments.work, arguments.types, arguments.by_hand):
            print(row.line(), flush=True)
    else:
        print(pack(arguments.work))


def learn_all(arguments: argparse.Namespace) -> None:
    import torch  # noqa: PLC0415 - only to learn
    import transformers.conversion_mapping  # noqa: PLC0415 - before the processes part
    from support.libraries import with_timm  # noqa: PLC0415 - imports torch
    from transformers.utils import import_utils  # noqa: PLC0415 - likewise

    import catalogue.learner  # noqa: F401, PLC0415 - what the processes share
    from auditor.oracle.inventory import inventory  # noqa: PLC0415 - likewise

    with_timm()
    # transformers asks for torchvision, too, which builds nothing of timm
    is_there = find_spec("timm") is not None
    transformers.utils.is_timm_available = lambda: is_there
    import_utils.BACKENDS_MAPPING["timm"] = (transformers.utils.is_timm_available, "timm")
    for name in ("scipy", "natten"):  # of losses and kernels, which have no tensors
        import_utils.BACKENDS_MAPPING[name] = (lambda: True, name)
    torch.set_num_threads(1)
    os.environ["HF_HUB_OFFLINE"] = "1"
    inventory(arguments.library, *_WARM[arguments.library])  # what it imports and caches is shared
    gc.freeze()
    gc.set_threshold(100_000, 50, 50)
    end = time.monotonic() + arguments.seconds
    running: set[int] = set()
    for _, listed in itertools.groupby(
        pairs(arguments.library, arguments.types, by_hand=arguments.by_hand > 0),
        key=_of_one_process,
    ):
        open_pairs = [pair for pair in listed if _is_open(arguments, *pair)]
        if not open_pairs:
            continue
        if time.monotonic() > end:
            break
        while len(running) >= arguments.jobs:
            running.discard(os.wait()[0])
        process = os.fork()
        if not process:
            try:
                learn_type(arguments, open_pairs)
            finally:
                os._exit(0)
        running.add(process)
    while running:
        running.discard(os.wait()[0])


def _of_one_process(pair: tuple[str, str]) -> str:
    model_type, name = pair
    return model_type if model_type != "diffusers" else name


def _is_open(arguments: argparse.Namespace, model_type: str, name: str) -> bool:
    path = work_file(arguments.work, model_type, name)
    if not path.exists():
        return True
    result = json.loads(path.read_text())
    is_old = result.get("library") != installed(arguments.library)
    return is_old or (arguments.again and "form" not in result)


def _learned(probe: Any, seconds: float, known: Any) -> tuple[Any, Any]:
    """Return a learner and its form; learn up to three times if the form covers few configs."""
    from catalogue.learner import Learner, UnfitError  # noqa: PLC0415 - needs torch

    tries: list[tuple[Any, Any]] = []
    for seed in range(3):
        learner = Learner(probe, seconds, known, seed)
        try:
            tries.append((learner, learner.learn()))
        except UnfitError:
            if seed == 2 and not tries:
                raise
        if tries and tries[-1][0].report["outside"] * 3 <= tries[-1][0].report["exact"]:
            return tries[-1]
    return max(tries, key=lambda one: _coverage(one[0]))


def learn_type(arguments: argparse.Namespace, open_pairs: list[tuple[str, str]]) -> None:
    """Learn a type's classes and write the form of each, or why it has none."""
    from catalogue.learner import UnfitError  # noqa: PLC0415 - needs torch
    from catalogue.probe import Probe  # noqa: PLC0415 - likewise

    limit = arguments.limit * (1 + len(open_pairs)) // 2
    resource.setrlimit(resource.RLIMIT_CPU, (limit, limit + 5))
    signal.alarm(limit * 6)
    with suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_AS, (6 * 2**30, 6 * 2**30))
    sys.stderr = open(os.devnull, "w")  # noqa: PTH123, SIM115 - the libraries' warnings
    learners = dict[str, Any]()
    # a second time for classes of which the form covers less than that of another class
    for model_type, name in (*open_pairs, *open_pairs):
        known = max(learners.values(), key=_coverage, default=None)
        mine = learners.get(name)
        if known and mine and (mine is known or not mine.report["outside"]):
            continue
        path = work_file(arguments.work, model_type, name)
        library = installed(arguments.library)
        stopped = {"library": library, "failed": "the time is up, or the process was killed"}
        if mine is None:
            path.write_text(json.dumps(stopped))
        try:
            learner, form = _learned(Probe(arguments.library, name), arguments.limit * 0.5, known)
            form = msgspec.structs.replace(form, library=library)
            result = {"report": learner.report, "form": msgspec.to_builtins(form)}
            if mine and _coverage(learner) <= _coverage(mine):
                continue
            if learner.rows:
                learners[name] = learner
        except UnfitError as error:
            result = {"failed": str(error)}
        except KeyboardInterrupt:  # it was not learned
            path.unlink()
            return
        except Exception as error:  # noqa: BLE001 - a library may raise anything
            result = {"failed": f"{type(error).__name__}: {error}"[:300]}
        if mine is None or "form" in result:
            path.write_text(json.dumps({"library": library, **result}))
        print(f"{model_type} {name}: {result.get('report') or result['failed']}", flush=True)


def _coverage(learner: Any) -> int:
    return int(learner.report["exact"] - learner.report["outside"])


if __name__ == "__main__":
    main()
