"""Installs the scanners, collects samples and judges them; exits with 1 if one breaks the law."""

import argparse
import json
import os
import subprocess
import sys
import tarfile
import tempfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from venv import EnvBuilder

from fuzz import archives
from fuzz.bounds import bounded_memory
from fuzz.hostile_files import legacy
from fuzz.target import UNSAFE, Verdict
from fuzz.torch_law import judge_file, judge_pickle

from auditor.containers.weight_formats import PICKLED

PACKAGES = ("picklescan", "fickling", "modelscan", "modelaudit")
HELPERS = ("pytest", "pytest-asyncio", "dill", "joblib", "py7zr", "numpy")
INSIDE = Path(__file__).with_name("inside.py")
_LARGEST = 4 * 1024 * 1024  # bytes of a sample
_SHOWN = 20
_ABOUT = ("pickle", "torch", "joblib", "dill", "cve_")  # in the names of tests that make pickles
_PIP = ("-m", "pip", "--quiet", "--disable-pip-version-check")


def main() -> int:
    parser = argparse.ArgumentParser(prog="scanners", description=__doc__)
    parser.add_argument("--folder", type=Path, help="keeps what is installed and collected there")
    parser.add_argument("--seconds", type=int, default=600, help="for each test suite (600)")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        folder = (options.folder or Path(temporary)).resolve()
        collect(folder, options.seconds)
        return report(folder)


def collect(folder: Path, seconds: int) -> None:
    """Install the packages, run their tests, and write what they know."""
    python = folder / "venv" / "bin" / "python"
    sources, kept = folder / "sources", folder / "kept"
    kept.mkdir(parents=True, exist_ok=True)
    if not python.exists():
        EnvBuilder(with_pip=True).create(folder / "venv")
        _run(python, *_PIP, "install", *PACKAGES, *HELPERS)
        for package in PACKAGES:
            only = ("--no-deps", "--no-binary", package, "--dest", str(sources))
            _run(python, *_PIP, "download", *only, package)
        for archive in sources.glob("*.tar.gz"):
            with tarfile.open(archive) as unpacked:
                unpacked.extractall(sources, filter="data")
    _run(python, str(INSIDE), str(kept))
    for tests in sorted(_test_folders(sources)):
        _run_tests(python, tests, kept, folder / "written" / tests.parent.name, seconds)


def _test_folders(sources: Path) -> Iterator[Path]:
    for path in sources.rglob("tests"):
        if path.is_dir() and any(path.rglob("test_*.py")):
            yield path


def _run_tests(python: Path, tests: Path, kept: Path, written: Path, seconds: int) -> None:
    """Run the tests that are about pickles; many fail without their data, which is no matter."""
    files = [str(path) for path in sorted(tests.rglob("test_*.py")) if _is_about_pickles(path)]
    if not files:
        return
    written.parent.mkdir(parents=True, exist_ok=True)
    here = str(Path(__file__).parent.parent)
    environment = {**os.environ, "KEEP_PICKLES": str(kept), "PYTHONPATH": here}
    command = (
        python,
        "-m",
        "pytest",
        "-q",
        "-p",
        "scanners.keep_pickles",
        "-p",
        "no:cacheprovider",
    )
    options = ("-o", "addopts=", "--basetemp", str(written), *files)
    try:
        subprocess.run(  # noqa: S603 - the suites that this program is for
            (*map(str, command), *options),
            cwd=tests.parent,
            env=environment,
            timeout=seconds,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            check=False,
        )
    except subprocess.TimeoutExpired:
        print(f"the tests of {tests.parent.name} were stopped after {seconds} s")


def _is_about_pickles(path: Path) -> bool:
    return path.parent.name == "tests" or any(word in path.name for word in _ABOUT)


def _run(python: Path, *arguments: str) -> None:
    subprocess.run((str(python), *arguments), check=True)  # noqa: S603 - of our own words


def report(folder: Path) -> int:
    kinds: Counter[str] = Counter()
    faults: list[str] = []
    with bounded_memory():
        for name, verdict in judged(folder):
            kinds[verdict.kind] += 1
            faults += [f"{name}: {verdict.fault}"] if verdict.fault else []
    counted = ", ".join(f"{count:,} {kind}" for kind, count in sorted(kinds.items()))
    print(f"{sum(kinds.values()):,} samples: {counted}; {len(faults):,} break the law")
    for fault in faults[:_SHOWN]:
        print(f"  {fault[:300]}")
    return 1 if faults else 0


def judged(folder: Path) -> Iterator[tuple[str, Verdict]]:
    seen: set[bytes] = set()
    for path in sorted(folder.rglob("*")):
        if folder / "venv" in path.parents or not _is_sample(path):
            continue
        content = path.read_bytes()
        if content not in seen:
            seen.add(content)
            name = str(path.relative_to(folder))
            yield name, judge_file(content)
            yield f"{name}, its bytes as a pickle", judge_pickle(content)
            yield f"{name}, as data.pkl", judge_file(archives.written(archives.torch_form(content)))
    for module, name in json.loads((folder / "kept" / "names.json").read_text()):
        for content in calling(module, name):
            verdict = judge_file(content)
            if verdict.kind != UNSAFE:
                verdict = Verdict(verdict.kind, "a name that scanners warn of is not unsafe")
            yield f"{module}.{name}", verdict


def _is_sample(path: Path) -> bool:
    if not path.is_file() or path.is_symlink() or not 0 < path.stat().st_size <= _LARGEST:
        return False
    with path.open("rb") as file:
        start = file.read(4)
    return path.name.endswith(PICKLED) or start[:1] == b"\x80" or start == b"PK\x03\x04"


def calling(module: str, name: str) -> Iterator[bytes]:
    """Files that call the name: bare, in an archive and in the legacy form, by either opcode."""
    line = b"\x80\x02c%s\n%s\n(tR." % (module.encode(), name.encode())
    words = (b"\x8c" + bytes([len(word)]) + word for word in (module.encode(), name.encode()))
    stacked = b"\x80\x04" + b"".join(words) + b"\x93)R."
    for pickle in (line, stacked):
        yield pickle
        yield archives.written(archives.torch_form(pickle))
        yield legacy(pickle)


if __name__ == "__main__":
    sys.exit(main())
