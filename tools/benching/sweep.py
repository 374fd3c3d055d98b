"""audit sweep beside huggingface_hub.

Whole processes against nginx on loopback, in turn: a cold sweep, which reads and reconciles every
model and keeps it, and get_safetensors_metadata from a pool of threads, which reads and counts the
same headers; then a second night on which nothing has changed. Of models that are alike, of models
that are not, and at the Hub's distance, where both wait for most of the time. Then memory by number
of models: of those that are alike, close by, and of those that are not, at the distance. A bench
and not a gate: it ends with 0 whatever the figures are.
"""

import argparse
import json
import os
import platform
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from importlib.metadata import version
from pathlib import Path
from statistics import median

from benching.list_server import serving_apart
from benching.measure import AUDIT
from benching.sweep_models import AUTHOR, PAGE, write
from benching.sweep_server import NGINX, nginx
from benching.sweep_tree import Run, peak, run

MODELS = 2000
SIZES, FAR_SIZES = (200, 2000, 10_000, 20_000), (2000, 10_000)
LISTS, LONG_LISTS = (30_000, 300_000), (300_000, 3_000_000)
BASES = 20  # of which the models are fine-tunes; and once as many bases as models

# Of the peer: where no distance is to be bridged, more threads only wait for each other. It made
# 486 models/s with 4, 462 with 8, 431 with 16, 375 with 32. A sweep has 64 by default.
THREADS = 4

# Seconds by which answers come later at the Hub's distance, and the threads of the peer there.
DISTANCE = 0.15
PEER_FAR = 32


@dataclass(frozen=True, kw_only=True)
class Setup:
    """What is swept, and from how far."""

    title: str
    models: int
    bases: int
    distance: float = 0.0
    threads: int = THREADS  # of the peer


@dataclass(frozen=True, kw_only=True)
class Cold:
    """One side's runs over the same models, in turn with the other's."""

    title: str
    ours: tuple[Run, ...]
    peer: tuple[Run, ...]
    server: float  # of one core, the share that nginx took during our runs
    requests: int  # of one of our runs
    second: tuple[Run, ...]  # the night after each of ours, on which nothing had changed
    second_requests: int


def arguments(given: Sequence[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="bench sweep", description=__doc__)
    parser.add_argument("--runs", type=int, default=3, help="pairs, after one to warm up")
    parser.add_argument("--models", type=int, default=MODELS)
    parser.add_argument("--sizes", type=int, nargs="*", default=SIZES, help="for the memory")
    parser.add_argument("--far-sizes", type=int, nargs="*", default=FAR_SIZES, help="at a distance")
    parser.add_argument("--lists", type=int, nargs="*", help="of so many entries")
    parser.add_argument("--full", action="store_true", help="lists as long as the Hub's, and more")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures there")
    return parser.parse_args(given)


def main() -> None:
    options = arguments()
    if not Path(NGINX).is_file():
        _say("no nginx here: apt-get install nginx-light")
        return
    with tempfile.TemporaryDirectory() as bytecode:
        cold = [
            # At a distance a run takes half a minute, and all take as long.
            _cold(setup, 1 if setup.distance else options.runs, Path(bytecode))
            for setup in _setups(options.models)
        ]
        memory = {size: _memory(size, BASES, 0.0, Path(bytecode)) for size in options.sizes}
        far = {size: _memory(size, size, DISTANCE, Path(bytecode)) for size in options.far_sizes}
        lengths = options.lists if options.lists is not None else _lists(full=options.full)
        lists = {length: _listed(length, Path(bytecode)) for length in lengths}
    for one in cold:
        _say(_described(one, options.models))
    for size, most in memory.items():
        _say(f"memory, cold sweep of {size:>6,} models: {most / 1e6:,.1f} MB")
    for size, most in far.items():
        _say(f"memory, {size:>6,} models, all different, far away: {most / 1e6:,.1f} MB")
    for length, one in lists.items():
        rate = length / one.wall
        most = one.peak / 1e6
        _say(f"list of {length:>9,} models: {rate:6,.0f} entries/s, at most {most:,.1f} MB")
    names = ("huggingface_hub", "hf-audit")
    versions = ", ".join(f"{name} {version(name)}" for name in names)
    _say(
        f"{options.runs} pairs after one to warm up, 1 at a distance; {platform.system()} "
        f"{platform.machine()}, {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}; "
        f"python {platform.python_version()}, {versions}"
    )
    if options.json:
        figures = {"cold": [_figures(one) for one in cold], "memory": memory, "far": far}
        figures["lists"] = {length: asdict(one) for length, one in lists.items()}
        options.json.write_text(json.dumps(figures, indent=1) + "\n", encoding="utf-8")


def _setups(models: int) -> Iterator[Setup]:
    title = f"{models:,} models of {BASES} bases"
    unlike = f"{models:,} models, all different"
    far = {"models": models, "distance": DISTANCE, "threads": PEER_FAR}
    later = f"every answer {DISTANCE * 1000:.0f} ms later"
    yield Setup(title=title, models=models, bases=BASES)
    yield Setup(title=unlike, models=models, bases=models)
    yield Setup(title=f"{title}, {later}", bases=BASES, **far)
    yield Setup(title=f"{unlike}, {later}", bases=models, **far)


def _cold(setup: Setup, runs: int, bytecode: Path) -> Cold:
    models = setup.models
    ours, peer, second = [], [], []
    shares, asked, asked_again = [], [], []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write(folder, models, setup.bases)
        with nginx(folder, models, PAGE, setup.distance) as server:
            for number in range(runs + 1):
                store = folder / f"{number}.sqlite"
                before, cpu = server.requests(), server.cpu()
                ours.append(run(_sweep(store, "n1"), bytecode, server.url))
                shares.append((server.cpu() - cpu) / ours[-1].wall)
                asked.append(server.requests() - before)
                before = server.requests()
                second.append(run(_sweep(store, "n2"), bytecode, server.url))
                asked_again.append(server.requests() - before)
                peer.append(run(_peer(models, setup.threads), bytecode, server.url))
    return Cold(
        title=setup.title,
        ours=tuple(ours[1:]),
        peer=tuple(peer[1:]),
        server=median(shares[1:]),
        requests=asked[-1],
        second=tuple(second[1:]),
        second_requests=asked_again[-1],
    )


def _sweep(store: Path, night: str) -> tuple[str, ...]:
    kept = ("--store", str(store), "--night", night)
    return AUDIT, "sweep", "--author", AUTHOR, *kept, "--quiet"


def _peer(models: int, threads: int) -> tuple[str, ...]:
    """Every header, parsed and counted, from a pool of threads."""
    code = (
        "from concurrent.futures import ThreadPoolExecutor\n"
        "from huggingface_hub import get_safetensors_metadata\n"
        f"ids = [f'{AUTHOR}/m{{number:05}}' for number in range({models})]\n"
        f"with ThreadPoolExecutor({threads}) as pool:\n"
        "    found = pool.map(get_safetensors_metadata, ids)\n"
        "    print(sum(sum(one.parameter_count.values()) for one in found))\n"
    )
    return sys.executable, "-c", code


def _memory(models: int, bases: int, distance: float, bytecode: Path) -> int:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write(folder, models, bases)
        with nginx(folder, models, PAGE, distance) as server:
            return peak(_sweep(folder / "sweep.sqlite", "n1"), bytecode, server.url)


@dataclass(frozen=True, kw_only=True)
class Listed:
    """One selection into a store."""

    wall: float  # seconds
    peak: int  # bytes


def _lists(*, full: bool) -> tuple[int, ...]:
    return LONG_LISTS if full else LISTS


def _listed(models: int, bytecode: Path) -> Listed:
    selecting = str(Path(__file__).with_name("selecting.py"))
    with serving_apart(models) as url, tempfile.TemporaryDirectory() as name:
        start = time.perf_counter()
        most = peak((sys.executable, selecting, f"{name}/s.sqlite"), bytecode, url)
        wall = time.perf_counter() - start
    return Listed(wall=wall, peak=most)


def _described(cold: Cold, models: int) -> str:
    sides = (cold.ours, cold.peer, cold.second)
    ours, peer, second = (median([one.wall for one in side]) for side in sides)
    cpu = [median([one.cpu for one in side]) for side in sides]
    pairs = zip(cold.ours, cold.peer, strict=True)
    ratios = sorted(theirs.wall / mine.wall for mine, theirs in pairs)
    each = f"{1000 * cpu[0] / models:.1f} ms a model"
    lines = (
        cold.title,
        f"  audit sweep      {models / ours:7,.0f} models/s ({ours:.2f} s, CPU {cpu[0]:.2f} s)",
        f"                   {each} of processor time, the start of the process included",
        f"  huggingface_hub  {models / peer:7,.0f} models/s ({peer:.2f} s, CPU {cpu[1]:.2f} s)",
        f"  ratio            {median(ratios):.2f} ({ratios[0]:.2f} to {ratios[-1]:.2f})",
        f"  requests         {cold.requests:,}, nginx at {cold.server:.0%} of a core",
        f"  second night     {second:.3f} s, CPU {cpu[2]:.2f} s, {cold.second_requests} requests",
        f"                   {ours / second:.0f} times faster, the start of the process included",
        "",
    )
    return "\n".join(lines)


def _figures(cold: Cold) -> dict[str, object]:
    return {
        "title": cold.title,
        "ours": [asdict(one) for one in cold.ours],
        "peer": [asdict(one) for one in cold.peer],
        "second": [asdict(one) for one in cold.second],
        "requests": cold.requests,
        "second_requests": cold.second_requests,
        "server": cold.server,
    }


def _say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
