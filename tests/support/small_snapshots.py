"""Snapshots of one file of safetensors, made from tensors and the values of a config."""

import json
from collections.abc import Iterable
from typing import Any

from auditor.checkpoint.snapshot import Snapshot, Source, TextFile, WeightHeader
from auditor.containers.weight_formats import Table
from auditor.tensors import StoredTensor

FILE = "model.safetensors"


def snapshot_of(tensors: Iterable[StoredTensor], **config: Any) -> Snapshot:
    table = Table(file=FILE, tensors=tuple(sorted(tensors)))
    content = json.dumps({"dtype": "float32", **config}).encode()
    return Snapshot(
        model="small",
        commit=None,
        source=Source.FOLDER,
        origin="",
        files=(),
        config=TextFile(name="config.json", content=content),
        headers=(WeightHeader(name=FILE, size=None, known=table),),
    )
