"""Models shipped with the package, for machines offline: snapshots, and configs out of papers.

Snapshots are of a handful of well-known models. The configs are of models that a paper describes
and no repository has, for `audit explain`; their names have no namespace, as no new repository of
the Hub may have.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple

from msgspec.structs import replace

from auditor.checkpoint.snapshot import RepoFile, Snapshot, Source, TextFile
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


class _Paper(NamedTuple):
    config: Mapping[str, object]
    origin: str


# Vaswani et al. 2017, table 3; vocabulary: section 5.1. No number of words makes both counts good:
# the arithmetic is in tests/unit/analytic/families/test_transformer_2017.py.
_VASWANI = "https://arxiv.org/abs/1706.03762, table 3"
_BASE = _Paper(
    {"vocab_size": 37000, "d_model": 512, "d_ff": 2048, "num_layers": 6, "num_heads": 8},
    f"the config of the base model in {_VASWANI}, which counts 65 million: its layers and its "
    '"about 37000" words make 63.0, and 41,100 words would make 65.1',
)
_BIG = _Paper(
    {"vocab_size": 37000, "d_model": 1024, "d_ff": 4096, "num_layers": 6, "num_heads": 16},
    f"the config of the big model in {_VASWANI}, which counts 213 million: its layers and its "
    '"about 37000" words make 214.2, and 36,000 words would make 213.1',
)
_PAPERS: Mapping[str, _Paper] = MappingProxyType(
    {
        "transformer-2017": _BASE,
        "transformer-2017-base": _BASE,
        "transformer-2017-big": _BIG,
    }
)
PAPERS = tuple(_PAPERS)


def read_paper(model: HubModel) -> Snapshot | None:
    """A snapshot of a config alone; None where the name is of no such model."""
    paper = _PAPERS.get(model.id)
    if paper is None or model.revision is not None:
        return None
    stated = {"architectures": ["Transformer2017"], "model_type": "transformer-2017"}
    content = (json.dumps({**stated, **paper.config}, indent=2) + "\n").encode()
    return Snapshot(
        model=model.id,
        commit=None,
        source=Source.BUNDLED,
        origin=paper.origin,
        files=(RepoFile(name="config.json", size=len(content)),),
        config=TextFile(name="config.json", content=content),
        headers=(),
    )
