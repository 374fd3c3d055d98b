"""The versions that an outcome depends on, besides the checkpoint."""

import re
from collections.abc import Iterable, Iterator
from functools import cache
from hashlib import sha256
from itertools import accumulate
from pathlib import Path

from auditor.oracle.transformers_classes import EXTRAS, installed_library
from auditor.sweep.settings import Policy
from auditor.sweep.store.reading import Versions
from auditor.version import VERSION

_PACKAGE = Path(__file__).parent.parent

# An outcome depends on these modules and on all that they import: they read and examine a
# checkpoint, and write the outcome. The command line, the sweep and its reports change no outcome.
_PIPELINE = ("auditor.audit.pipeline", "auditor.formats.as_json")
_DATA = "data"  # a folder of the package

_IMPORT = re.compile(r"^[ \t]*from (auditor[\w.]*) import (\([^)]*\)|.*)", re.MULTILINE)
_BY_NAME = re.compile(r'import_module\(\s*f"(auditor[\w.]*)\.\{')  # may be any of its modules


@cache
def current_versions(*, policy: Policy | None = None) -> Versions:
    """Return the package's version, a digest of its sources, and the oracle's version.

    Because of the digest, models are audited again after a change of a family or a rule, even if
    the package's version is unchanged. What the policy asks of an audit is part of the versions
    too: whether companion files are read, and which engines judge.
    """
    # None: the library's models without a closed form stay unaudited
    oracles = [library.name for key in EXTRAS if (library := installed_library(key))]
    asked = (*(("companions",) if policy.companions else ()), *policy.engines) if policy else ()
    parts = (_digest(_PACKAGE), *oracles, *asked)
    return Versions(auditor=VERSION, catalogue=", ".join(parts))


def pipeline_files(package: Path = _PACKAGE) -> tuple[Path, ...]:
    """Return the files that outcomes depend on, sorted: data files and imported modules."""
    path_by_module = _modules(package)
    data = (package / _DATA).rglob("*")
    files = [path for path in data if path.is_file() and path.suffix != ".pyc"]
    unread_modules = [*_PIPELINE]
    while unread_modules:
        # A module, and the packages that contain it.
        for name in accumulate(unread_modules.pop().split("."), "{}.{}".format):
            if path := path_by_module.pop(name, None):
                files.append(path)
                unread_modules += _imported(path.read_text("utf-8"), path_by_module)
    return tuple(sorted(files))


def _modules(package: Path) -> dict[str, Path]:
    """Return the source files of the package by module name."""
    path_by_module = {}
    for path in package.rglob("*.py"):
        parts = path.relative_to(package).with_suffix("").parts
        path_by_module[".".join(["auditor", *parts]).removesuffix(".__init__")] = path
    return path_by_module


def _imported(source: str, modules: Iterable[str]) -> Iterator[str]:
    """Yield each dotted name of this package that a source file imports or may import by name."""
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
