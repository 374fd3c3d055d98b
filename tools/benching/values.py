"""How fast `--values` reads a local file, beside a loop over safetensors.safe_open with torch.

Each in a process of its own, over the same 2 GiB of BF16 in the page cache; processor time is user
and system, the best of three. `--gib 4` takes another size. Then `audit diff` of the file and its
copy (in gigabytes of one of the two), and what a sample of Llama-3.1-70B costs on a Hub on
loopback beside its headers.
"""

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from support.hub import Hub

from benching.seventy import SEVENTY, seventy

PEAK = """
import atexit, re, sys
def peak():
    print(re.search(r"VmHWM:\\s*(\\d+)", open("/proc/self/status").read())[1], file=sys.stderr)
atexit.register(peak)
"""  # and not ru_maxrss, which a program has from the one that starts it
PLAIN = "from auditor.cli import main; main()"
LOOP = """
import sys, torch
from safetensors import safe_open
torch.set_num_threads(int(sys.argv[2]))
bad = zero = 0
with safe_open(sys.argv[1], framework="pt") as file:
    for name in file.keys():
        tensor = file.get_tensor(name)
        bad += not torch.isfinite(tensor).all()
        zero += not tensor.any()
print(bad, zero)
"""
PAIR = """
import sys
from pathlib import Path
from auditor.comparing import side_of, stored_pairs
from auditor.downloader import local_folder
from auditor.values.same_bytes import compare_bytes
first, second = (local_folder.read(Path(one), one) for one in sys.argv[1:])
pairs = tuple(stored_pairs(side_of(first), side_of(second), str))
found = compare_bytes(first, second, pairs, lambda text: None)
assert len(found.equal) == len(pairs) > 0
"""
READER = """
import sys
from pathlib import Path
from auditor.downloader import local_folder
from auditor.values.reading import NumbersReader
from auditor.values.tensor_bytes import opened, place_tensors
snapshot = local_folder.read(Path(sys.argv[1]), sys.argv[1])
placed, _ = place_tensors(snapshot)
with opened(placed) as data:
    reader = NumbersReader(data, threads=int(sys.argv[2]), statistics=len(sys.argv) > 3)
    found = reader.read(placed)
print(sum(one.nan + one.inf for one in found), sum(not one.nonzero for one in found))
"""


def written(path: Path, gib: float, width: int = 4096) -> int:
    """A file of BF16 matrices of 32 MiB; its bytes."""
    import numpy as np  # noqa: PLC0415 - the children measure themselves

    rng = np.random.default_rng(0)
    rows = rng.standard_normal((width, width), dtype=np.float32).view(np.uint32) >> 16
    data, count = rows.astype(np.uint16).tobytes(), int(gib * 2**30 / (2 * width * width))
    with path.open("wb") as file:
        file.write(header(count, width, len(data)))
        for _ in range(count):
            file.write(data)
    return count * len(data)


def header(count: int, width: int, size: int) -> bytes:
    entries = {
        f"layer.{at}.weight": {
            "dtype": "BF16",
            "shape": [width, width],
            "data_offsets": [at * size, (at + 1) * size],
        }
        for at in range(count)
    }
    text = json.dumps(entries).encode()
    text += b" " * (-len(text) % 8)
    return len(text).to_bytes(8, "little") + text


def measured(code: str, *args: str) -> tuple[float, float, int]:
    """Wall time, processor time, and the most memory of a program, in seconds and bytes."""
    best = (float("inf"), float("inf"), 0)
    for _ in range(3):
        since = time.perf_counter()
        before = os.times()
        child = subprocess.run(  # noqa: S603 - our own interpreter and program
            [sys.executable, "-c", PEAK + code, *args], capture_output=True, text=True, check=False
        )
        wall, after = time.perf_counter() - since, os.times()
        used = after.children_user + after.children_system
        used -= before.children_user + before.children_system
        best = min(best, (wall, used, int(child.stderr.split()[-1]) * 1024))
    return best


def main() -> None:
    parser = argparse.ArgumentParser(prog="bench values", description=__doc__)
    parser.add_argument("--gib", type=float, default=2.0)
    parser.add_argument("--place", type=Path, help="where to write; the files go away again")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=options.place) as place:
        file = Path(place, "model.safetensors")
        size = written(file, options.gib)
        small = Path(place, "small.safetensors")
        written(small, 32 / 1024)
        base = {code: measured(code, str(small), "1")[1] for code in (READER, LOOP)}
        print(f"{'':38}{'GB/s a core':>12}{'seconds':>9}{'MB':>7}")
        for label, code, args in (
            ("audit --values, 1 thread", READER, ["1"]),
            ("audit --values, 2 threads", READER, ["2"]),
            ("audit --values --statistics, 2 threads", READER, ["2", "statistics"]),
            ("safe_open and torch, 1 thread", LOOP, ["1"]),
            ("safe_open and torch, 2 threads", LOOP, ["2"]),
        ):
            wall, cpu, memory = measured(code, str(file), *args)
            speed = size / max(cpu - base[code], 1e-9) / 1e9
            print(f"{label:38}{speed:>12.2f}{wall:>9.2f}{memory / 1e6:>7.0f}")
        copy, small_copy = (shutil.copy(one, f"{one}.copy.safetensors") for one in (file, small))
        wall, cpu, memory = measured(PAIR, str(file), copy)
        speed = size / max(cpu - measured(PAIR, str(small), small_copy)[1], 1e-9) / 1e9
        print(f"{'audit diff of two equal files':38}{speed:>12.2f}{wall:>9.2f}{memory / 1e6:>7.0f}")
        Path(copy).unlink()
        _, _, plain = measured(PLAIN, str(file), "--quiet")
        _, _, whole = measured(PLAIN, str(file), "--values", "--quiet")
        print(f"memory of audit {plain / 1e6:.0f} MB, with --values {whole / 1e6:.0f} MB")
    sampled()


def sampled() -> None:
    """Requests and bytes of an audit of 70 billion parameters, with and without a sample."""
    with Hub() as hub, tempfile.TemporaryDirectory() as home:
        hub.add(SEVENTY, seventy())
        known = {"HF_ENDPOINT": hub.url, "HF_HOME": home}
        for label, more in (("headers alone", ()), ("with a sample", ("--values",))):
            hub.reset_log()
            since = time.perf_counter()
            child = subprocess.run(  # noqa: S603 - as above
                [sys.executable, "-c", PLAIN, SEVENTY, "--format", "json", *more],
                capture_output=True,
                text=True,
                check=False,
                env=os.environ | known,
            )
            wall = time.perf_counter() - since
            found = json.loads(child.stdout)
            sent = sum(record.sent for record in hub.log)
            read = found["values"]
            seen = f"{len(read['tensors'])} of {read['of_tensors']} tensors" if read else ""
            print(f"70B, {label}: {len(hub.log)} requests, {sent:,} bytes, {wall:.2f} s {seen}")
