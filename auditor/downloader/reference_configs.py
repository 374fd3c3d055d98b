"""Models that a paper describes and no repository has: their configs, for `audit explain`.

Their names have no namespace, as no new repository of the Hub may have.
"""

import json
from collections.abc import Mapping
from types import MappingProxyType
from typing import NamedTuple

from auditor.checkpoint.snapshot import RepoFile, Snapshot, Source, TextFile
from auditor.downloader.model_argument import HubModel


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
NAMES = tuple(_PAPERS)


def read(model: HubModel) -> Snapshot | None:
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
