"""Models shipped with the package: snapshots of well-known models, and configs from papers.

The configs serve `audit explain` for models that a paper describes and no repository contains.
Their names have no namespace, unlike those of new repositories on the Hub.
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
_BETWEEN = "--"  # in file names, in place of the "/" of an id

# Model name -> shipped config, from Vaswani et al. 2017: table 3 and, for the vocabulary, section
# 5.1. No vocabulary size gives both published counts; the arithmetic is in
# tests/unit/analytic/families/test_transformer_2017.py.
_BASE, _BIG = "transformer-2017-base", "transformer-2017-big"
_PAPERS = MappingProxyType({"transformer-2017": _BASE, _BASE: _BASE, _BIG: _BIG})
PAPERS = tuple(_PAPERS)


def bundled_models() -> tuple[str, ...]:
    """Return the ids of the shipped models, sorted."""
    files = _DATA.glob(f"*{_BETWEEN}*{_ENDING}")
    return tuple(sorted(file.stem.replace(_BETWEEN, "/") for file in files))


def file_name(model_id: str) -> str:
    return model_id.replace("/", _BETWEEN) + _ENDING


def read(model: HubModel) -> Snapshot:
    """Return the shipped snapshot of a model; raise SourceError if it is not shipped."""
    shipped = bundled_models()
    name = next((alias for alias in model.aliases if alias in shipped), None)
    if name is None:
        detail = f"{model.id} is not shipped with this package, which has {', '.join(shipped)}"
        raise SourceError(Reason.NOT_BUNDLED, detail)
    snapshot = _shipped(name)
    if model.revision not in {None, "main", snapshot.commit}:
        commit = f"commit {snapshot.commit}" if snapshot.commit else "an unknown commit of main"
        detail = f"the shipped snapshot of {name} is of {commit}, expected {model.revision}"
        raise SourceError(Reason.NOT_BUNDLED, detail)
    return snapshot


def read_paper(model: HubModel) -> Snapshot | None:
    """Return the snapshot of a config from a paper; None if no shipped paper names it."""
    name = _PAPERS.get(model.id)
    if name is None or model.revision is not None:
        return None
    return replace(_shipped(name), model=model.id)


def _shipped(model_id: str) -> Snapshot:
    name = file_name(model_id)
    return replace(load((_DATA / name).read_bytes(), name), source=Source.BUNDLED)
