"""The versions that an outcome depends on, beside the checkpoint."""

from functools import cache
from hashlib import sha256
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path

from auditor.sweep.store.reading import Versions

_PACKAGE = Path(__file__).parent.parent

# What an outcome is made by. The command line, what fetches and the other formats are not in it:
# they change often, and change no outcome.
_MAKERS = (
    "analytic",
    "audit.py",
    "containers",
    "data/config_classes.jsonl",
    "downloader/folders.py",
    "downloader/select.py",
    "downloader/standard.py",
    "examining",
    "expecting.py",
    "formats/as_json.py",
    "layouts",
    "oracle",
    "reconciler",
    "report.py",
    "tensors.py",
    "walker",
)


@cache
def versions() -> Versions:
    """The package's version, and what it knows: a digest of its rules, and the oracle's version.

    The digest is of source files, so that whoever changes a family or a rule between releases
    gets new outcomes without having to remember a number.
    """
    catalogue = _digest()
    oracle = _oracle()
    return Versions(
        auditor=version("hf-audit"), catalogue=f"{catalogue}, {oracle}" if oracle else catalogue
    )


def _digest() -> str:
    digest = sha256()
    for name in _MAKERS:
        found = _PACKAGE / name
        for path in sorted(found.rglob("*.py")) if found.is_dir() else [found]:
            content = path.read_bytes()
            digest.update(f"{path.relative_to(_PACKAGE).as_posix()} {len(content)}\n".encode())
            digest.update(content)
    return digest.hexdigest()[:12]


def _oracle() -> str | None:
    """Who answers where there is no closed form; None: nobody, and such models stay unaudited."""
    if find_spec("torch") is None or find_spec("transformers") is None:
        return None
    try:
        return f"transformers {version('transformers')}"
    except PackageNotFoundError:
        return None
