"""The versions that an outcome depends on, beside the checkpoint."""

import re
from collections.abc import Iterable, Iterator
from functools import cache
from hashlib import sha256
from itertools import accumulate
from pathlib import Path

from auditor.oracle.transformers_classes import installed_library
from auditor.sweep.store.reading import Versions
from auditor.version import VERSION

_PACKAGE = Path(__file__).parent.parent

# An outcome depends on what these modules import: a checkpoint is read, examined and written, and
# the outcome of one model becomes that of another. The command line, the rest of the sweep and its
# reports are not among them: they change no outcome.
_PIPELINE = (
    "auditor.audit.pipeline",
    "auditor.formats.as_json",
    "auditor.sweep.workers.outcome_key",
)
_DATA = "data"  # a folder beside the sources

_IMPORT = re.compile(r"^[ \t]*from (auditor[\w.]*) import (\([^)]*\)|.*)", re.MULTILINE)
_BY_NAME = re.compile(r'import_module\(\s*f"(auditor[\w.]*)\.\{')  # any module of a package


@cache
def current_versions(*, companions: bool = False) -> Versions:
    """Return the package's version, a digest of its rules, and the oracle's version.

    The digest is of source files, so that outcomes are made again after a change of a family or a
    rule, whether or not somebody changes the version. Whether companion files are read is a part
    of the versions: the outcomes differ.
    """
    oracle = installed_library()  # None: models without a closed form stay unaudited
    rules = (_digest(_PACKAGE), *((oracle.name,) if oracle else ()))
    read = (*rules, "companions") if companions else rules
    return Versions(auditor=VERSION, catalogue=", ".join(read))


def pipeline_files(package: Path = _PACKAGE) -> tuple[Path, ...]:
    """Return the files that outcomes depend on, sorted: data, and each module that is imported."""
    modules = _modules(package)
    found = [path for path in (package / _DATA).rglob("*") if path.is_file()]
    left = [*_PIPELINE]
    while left:
        for name in accumulate(left.pop().split("."), "{}.{}".format):  # and the packages around it
            if path := modules.pop(name, None):
                found.append(path)
                left += _imported(path.read_text("utf-8"), modules)
    return tuple(sorted(found))


def _modules(package: Path) -> dict[str, Path]:
    """Return each source of the package by the name of its module."""
    found = {}
    for path in package.rglob("*.py"):
        parts = path.relative_to(package).with_suffix("").parts
        found[".".join(["auditor", *parts]).removesuffix(".__init__")] = path
    return found


def _imported(source: str, modules: Iterable[str]) -> Iterator[str]:
    """Yield names that a source may import: of modules, and of what modules define."""
    for base, names in _IMPORT.findall(source):
        yield base
        yield from (f"{base}.{name}" for name in re.findall(r"\w+", names))
    for package in _BY_NAME.findall(source):
        yield from (name for name in modules if name.startswith(f"{package}."))


def _digest(package: Path) -> str:
    digest = sha256()
    for path in pipeline_files(package):
        content = path.read_bytes()
        digest.update(f"{path.relative_to(package).as_posix()} {len(content)}\n".encode())
        digest.update(content)
    return digest.hexdigest()[:12]
