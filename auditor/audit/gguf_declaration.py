"""What the metadata of GGUF files declare in place of a config.json; whether the shards agree.

llama.cpp splits a model into files that name each other: split.no counts from 0, split.count is how
many there are, split.tensors.count how many tensors are in all of them. The first has the metadata
of the model, the others those three keys alone.
"""

import re
from collections.abc import Iterator
from types import MappingProxyType

from auditor.analytic import Config
from auditor.analytic.gguf_config import reconstructed_config
from auditor.audit.declaration import Declaration
from auditor.checkpoint.snapshot import Snapshot
from auditor.containers.gguf import GgufHeader
from auditor.layouts.packing import Declared
from auditor.messages import named
from auditor.reconciler.findings import BadIndex, Finding

_SHARD = re.compile(r"-(\d{5})-of-(\d{5})\.gguf$", re.ASCII | re.IGNORECASE)
_METHOD = "gguf"


def declared_by_gguf(snapshot: Snapshot) -> Declaration | None:
    """None: the snapshot has no GGUF file that can be read.

    Raises CheckpointError and SourceError as `reconstructed` does.
    """
    headers = [head.parsed for head in snapshot.headers if isinstance(head.parsed, GgufHeader)]
    if not headers:
        return None
    first = min(headers, key=lambda header: (header.integer("split.no") or 0, header.file))
    if len(headers) < len(snapshot.headers) and first.text("general.architecture") is None:
        return None  # it is in one of those that cannot be read
    shapes = {one.name: one.shape or () for header in headers for one in header.tensors}
    values, target = reconstructed_config(first, shapes)
    settings = MappingProxyType({"model_type": values["model_type"]})
    where = f"the metadata of {named(first.file)}"
    beside = named(snapshot.config.name) if snapshot.config else None
    note = f"{where} say what the model is" + (f", {beside} is not asked" if beside else "")
    return Declaration(
        config=Config(values=MappingProxyType(values), checked=False),
        target=target,
        quantization=Declared(method=_METHOD, settings=settings, where=where),
        notes=(note,),
        findings=tuple(_shard_findings(headers, len(snapshot.headers))),
    )


def _shard_findings(headers: list[GgufHeader], there: int) -> Iterator[Finding]:
    """`there`: the number of files, some of which may have no header that can be read."""
    tensors = sum(len(header.tensors) for header in headers)
    numbers: dict[int, str] = {}
    for header in headers:
        number, count = header.integer("split.no"), header.integer("split.count")
        total = header.integer("split.tensors.count")
        for fault in _faults(header.file, number, count, there):
            yield BadIndex(file=header.file, reason=fault)
        if number is not None and (other := numbers.setdefault(number, header.file)) != header.file:
            reason = f"its split.no is {number:,}, and so is that of {named(other)}"
            yield BadIndex(file=header.file, reason=reason)
        if total is not None and count == there == len(headers) and total != tensors:
            reason = f"its split.tensors.count is {total:,}, the {len(headers)} files hold "
            yield BadIndex(file=header.file, reason=f"{reason}{tensors:,}: {total - tensors:+,}")


def _faults(file: str, number: int | None, count: int | None, there: int) -> Iterator[str]:
    """What keeps a file from being the shard that its name and its place say."""
    name = _SHARD.search(file)
    if count is None:
        if there > 1:
            yield f"it has no split.count, and stands among {there} files of one model"
        return
    if count != there:
        yield f"its split.count is {count:,}, and {there} of these files are here"
    if name is not None and (int(name[1]) - 1, int(name[2])) != (number, count):
        number_is = "no split.no" if number is None else f"split.no {number:,}"
        shard = f"shard {int(name[1])} of {int(name[2])}"
        yield f"its name says {shard}, its metadata {number_is} of {count:,}"
