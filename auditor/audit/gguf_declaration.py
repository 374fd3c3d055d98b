"""The declaration in the metadata of GGUF files, which have no config.json, and their shards.

llama.cpp splits a model into files with three keys: split.no counts from 0, split.count is the
number of files, split.tensors.count the number of tensors in all of them. Only the first file also
has the metadata of the model.
"""

import re
from collections.abc import Iterator
from types import MappingProxyType

from auditor.analytic import Config
from auditor.analytic.gguf_config import reconstructed_config
from auditor.audit.declaration import Declaration
from auditor.checkpoint.snapshot import Snapshot
from auditor.containers.gguf import GgufHeader
from auditor.findings import BadIndex, Finding, MetadataContradiction
from auditor.layouts.packing import Declared
from auditor.messages import named

_SHARD = re.compile(r"-(\d{5})-of-(\d{5})\.gguf$", re.ASCII | re.IGNORECASE)
_METHOD = "gguf"


def declared_by_gguf(snapshot: Snapshot) -> Declaration | None:
    """Return the declaration of GGUF files; None if no file with metadata is readable.

    Raise CheckpointError and SourceError like `reconstructed_config`.
    """
    headers = _headers(snapshot)
    first = first_header(snapshot)
    if first is None:
        return None
    if len(headers) < len(snapshot.headers) and first.text("general.architecture") is None:
        return None  # the metadata may be in an unreadable file
    shapes = {one.name: one.shape or () for header in headers for one in header.tensors}
    values, target = reconstructed_config(first, shapes)
    settings = MappingProxyType({"model_type": values["model_type"]})
    where = f"the metadata of {named(first.file)}"
    ignored_config = named(snapshot.config.name) if snapshot.config else None
    note = f"{where} say what the model is" + (
        f", {ignored_config} is not asked" if ignored_config else ""
    )
    return Declaration(
        config=Config(values=MappingProxyType(values), checked=False),
        target=target,
        quantization=Declared(method=_METHOD, settings=settings, where=where),
        notes=(note,),
        findings=(
            *_shard_findings(headers, len(snapshot.headers)),
            *_contradictions(first, first.text("general.architecture") or ""),
        ),
    )


def _headers(snapshot: Snapshot) -> list[GgufHeader]:
    return [head.parsed for head in snapshot.headers if isinstance(head.parsed, GgufHeader)]


def first_header(snapshot: Snapshot) -> GgufHeader | None:
    """Return the header that has the metadata of the model; None if no header is readable."""
    headers = _headers(snapshot)
    return min(
        headers,
        key=lambda header: (header.integer("split.no") or 0, header.file),
        default=None,
    )


_EXPERTS, _USED = "expert_count", "expert_used_count"
_HEADS, _KEYS = "attention.head_count", "attention.head_count_kv"


def _contradictions(header: GgufHeader, arch: str) -> Iterator[Finding]:
    """Yield a finding for each assertion of llama.cpp that two numbers of the metadata break."""

    def number(key: str) -> int:
        return header.integer(f"{arch}.{key}") or 0

    experts, used, heads, keys = map(number, (_EXPERTS, _USED, _HEADS, _KEYS))
    if used > experts or (experts and not used):
        most = f"1 to {experts}" if experts else "none"
        yield _contradiction(header, arch, (_USED, _EXPERTS), f"expected {most}")
    if keys and heads % keys:
        yield _contradiction(header, arch, (_KEYS, _HEADS), f"expected a divisor of {heads}")


def _contradiction(header: GgufHeader, arch: str, pair: tuple[str, str], expected: str) -> Finding:
    keys = tuple(f"{arch}.{key}" for key in pair)
    values = [header.integer(key) for key in keys]
    first, second = ("absent" if value is None else str(value) for value in values)
    override = f"--override-kv {keys[0]}=int:N"
    return MetadataContradiction(
        says=tuple(zip((header.file,) * 2, keys, (first, second), strict=True)),
        reason=f"{keys[0]} is {first}, {expected} ({keys[1]} is {second}): "
        "llama.cpp stops at the file",
        fix=f"take the number from the config of the original model: {override}",
    )


def _shard_findings(headers: list[GgufHeader], file_count: int) -> Iterator[Finding]:
    """Yield the faults of the shards; `file_count` includes files without a readable header."""
    tensors = sum(len(header.tensors) for header in headers)
    file_by_number: dict[int, str] = {}
    for header in headers:
        number, count = header.integer("split.no"), header.integer("split.count")
        total = header.integer("split.tensors.count")
        for fault in _faults(header.file, number, count, file_count):
            yield BadIndex(file=header.file, reason=fault)
        first = header.file if number is None else file_by_number.setdefault(number, header.file)
        if first != header.file:
            reason = f"its split.no is {number:,}, and so is that of {named(first)}"
            yield BadIndex(file=header.file, reason=reason)
        if total is not None and count == file_count == len(headers) and total != tensors:
            reason = f"its split.tensors.count is {total:,}, the {len(headers)} files hold "
            yield BadIndex(file=header.file, reason=f"{reason}{tensors:,}: {total - tensors:+,}")


def _faults(file: str, number: int | None, count: int | None, file_count: int) -> Iterator[str]:
    """Yield the contradictions of a shard's metadata with its name and the number of files."""
    name = _SHARD.search(file)
    if count is None:
        if file_count > 1:
            yield f"it has no split.count, and stands among {file_count} files of one model"
        return
    if count != file_count:
        yield f"its split.count is {count:,}, and {file_count} of these files are here"
    if name is not None and (int(name[1]) - 1, int(name[2])) != (number, count):
        number_is = "no split.no" if number is None else f"split.no {number:,}"
        shard = f"shard {int(name[1])} of {int(name[2])}"
        yield f"its name says {shard}, its metadata {number_is} of {count:,}"
