"""Models shipped with the package, for machines offline: snapshots, and configs out of papers.

Snapshots are of a handful of well-known models. The configs are of models that a paper describes
and no repository has, for `audit explain`; their names have no namespace, as no new repository of
the Hub may have.
"""

from pathlib import Path
from types import MappingProxyType

from msgspec.structs import replace

from auditor.checkpoint.snapshot import Snapshot, Source
from auditor.checkpoint.snapshot_reader import load
from auditor.downloader.model_argument import HubModel
from auditor.errors import Reason, SourceError

_DATA = Path(__file__).parents[1] / "data"
_ENDING = ".json"
_BETWEEN = "--"  # stands for the "/" of an id, in which it cannot occur

# Names -> the shipped config. Vaswani et al. 2017, table 3; vocabulary: section 5.1. No number of
# words makes both counts good: the arithmetic is in
# tests/unit/analytic/families/test_transformer_2017.py.
_BASE, _BIG = "transformer-2017-base", "transformer-2017-big"
_PAPERS = MappingProxyType({"transformer-2017": _BASE, _BASE: _BASE, _BIG: _BIG})
PAPERS = tuple(_PAPERS)


def bundled_models() -> tuple[str, ...]:
    """The ids of the models that are shipped, sorted."""
    files = _DATA.glob(f"*{_BETWEEN}*{_ENDING}")
    return tuple(sorted(file.stem.replace(_BETWEEN, "/") for file in files))


def file_name(model_id: str) -> str:
    """The file's name in auditor/data for a model's id."""
    return model_id.replace("/", _BETWEEN) + _ENDING


def read(model: HubModel) -> Snapshot:
    """The shipped snapshot of a model; raises SourceError if none is shipped."""
    shipped = bundled_models()
    found = next((alias for alias in model.aliases if alias in shipped), None)
    if found is None:
        detail = f"{model.id} is not shipped with this package, which has {', '.join(shipped)}"
        raise SourceError(Reason.NOT_BUNDLED, detail)
    snapshot = _shipped(found)
    if model.revision not in {None, "main", snapshot.commit}:
        commit = f"commit {snapshot.commit}" if snapshot.commit else "an unknown commit of main"
        detail = f"the shipped snapshot of {found} is of {commit}, not of {model.revision}"
        raise SourceError(Reason.NOT_BUNDLED, detail)
    return snapshot


def read_paper(model: HubModel) -> Snapshot | None:
    """A snapshot of a config alone; None where the name is of no such model."""
    name = _PAPERS.get(model.id)
    if name is None or model.revision is not None:
        return None
    return replace(_shipped(name), model=model.id)


def _shipped(model_id: str) -> Snapshot:
    name = file_name(model_id)
    return replace(load((_DATA / name).read_bytes(), name), source=Source.BUNDLED)
