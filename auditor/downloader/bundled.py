"""The snapshots shipped with the package: a handful of well-known models, for machines offline."""

from pathlib import Path

from msgspec.structs import replace

from auditor.checkpoint.snapshot import Snapshot, Source
from auditor.checkpoint.snapshot_reader import load
from auditor.downloader.model_argument import HubModel
from auditor.errors import Reason, SourceError

_DATA = Path(__file__).parents[1] / "data"
_ENDING = ".json"
_BETWEEN = "--"  # stands for the "/" of an id, in which it cannot occur


def bundled_models() -> tuple[str, ...]:
    """The ids of the models that are shipped, sorted."""
    files = (file.name for file in _DATA.iterdir())
    ids = (name.removesuffix(_ENDING) for name in files if name.endswith(_ENDING))
    return tuple(sorted(one.replace(_BETWEEN, "/") for one in ids if _BETWEEN in one))


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
    name = file_name(found)
    snapshot = load((_DATA / name).read_bytes(), name)
    if model.revision not in {None, "main", snapshot.commit}:
        commit = f"commit {snapshot.commit}" if snapshot.commit else "an unknown commit of main"
        detail = f"the shipped snapshot of {found} is of {commit}, not of {model.revision}"
        raise SourceError(Reason.NOT_BUNDLED, detail)
    return replace(snapshot, source=Source.BUNDLED)
