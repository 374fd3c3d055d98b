"""Rules about the files that a training leaves: parts of one checkpoint, steps, an optimizer."""

import re
from collections.abc import Collection, Iterable, Iterator
from pathlib import PurePath

from auditor.checkpoint.selecting import ADAPTER_CONFIG
from auditor.checkpoint.snapshot import Snapshot
from auditor.companions.companion_files import LATEST, TRAINER_STATE
from auditor.containers.weight_formats import METADATA, Table, UnfollowedError, UnsafeFileError
from auditor.errors import CheckpointError
from auditor.findings import BadHeader, BadIndex, BadSize, ConfigContradiction, Finding, OfFile
from auditor.messages import listed, named, quoted
from auditor.names.parts import file_name, folder_of
from auditor.tensors import StoredTensor, learned

_OF_CODE = (UnsafeFileError, UnfollowedError)
_STEP = re.compile(r"checkpoint-(\d{1,12})", re.ASCII)
_GLOBAL_STEP = re.compile(rb'^ {0,2}"global_step": (\d{1,12}),?$', re.MULTILINE)
# Tensors of an optimizer's state that are as long as their parameter: AdamW, SGD, 8-bit AdamW.
_AS_LONG = re.compile(r".*?(\d+)\)?\.\(?(exp_avg|momentum_buffer|state1)\)?", re.ASCII)
_PACKED = frozenset(("U8", "I8", "I32", "F4"))  # dtypes of packed weights
_OPTIMIZERS = ("optimizer.pt", "optimizer.bin")


def has_parts(snapshot: Snapshot) -> bool:
    """Return whether the weights are parts that a training left, to be joined before they load."""
    return any(isinstance(head.parsed, Table) and head.parsed.to_do for head in snapshot.headers)


def own_names(tensors: Iterable[StoredTensor]) -> str:
    """Return a sentence about tensors with the names of torchtitan or torchtune, else ""."""
    if not any(one.name.endswith("tok_embeddings.weight") for one in tensors):
        return ""
    return (
        "the names are those of torchtitan or torchtune, not of transformers: they are counted, "
        "not reconciled; convert them with torchtitan's convert_to_hf.py, or with the checkpointer "
        "of torchtune, and audit what that writes"
    )


def training_findings(
    snapshot: Snapshot, tables: Iterable[Table], tensors: Collection[StoredTensor]
) -> Iterator[Finding]:
    """Yield the faults of the files of a training that are beside the audited ones."""
    for table in tables:
        yield from _needed_files(snapshot, table)
        yield from _latest(snapshot, table)
    for head in snapshot.pickles:  # the optimizer's
        if file_name(head.name) == METADATA and isinstance(head.parsed, Table):
            yield from _needed_files(snapshot, head.parsed, is_main=False)
    yield from _trainer_state(snapshot)
    yield from _optimizer(snapshot, tensors)


def joining_notes(snapshot: Snapshot, tables: Iterable[Table]) -> Iterator[str]:
    """Yield how the files of a training are joined, if all are there and none may run code."""
    heads = (*snapshot.headers, *snapshot.pickles)
    parsed = [head.parsed for head in heads]
    is_unsafe = any(isinstance(one, UnsafeFileError) for one in parsed)
    is_unsafe |= any(isinstance(one, Table) and bool(one.imports) for one in parsed)
    for table in tables:
        if table.to_do and not (is_unsafe or lost_files(snapshot, table)):
            yield f"to load {named(table.file)}: {table.to_do}"


def lost_files(snapshot: Snapshot, table: Table) -> list[str]:
    """Return the missing files; a folder of the Hugging Face cache is filled file by file."""
    if snapshot.partial and snapshot.commit is not None:
        return []
    names = {file.name for file in snapshot.files}
    return [one.path for one in table.needs if names.isdisjoint((one.path, one.instead))]


def lost_reason(table: Table, lost: list[str]) -> str:
    verb = "is" if len(lost) == 1 else "are"
    return f"{named(table.file)} needs {listed(lost)}, which {verb} missing"


def _needed_files(snapshot: Snapshot, table: Table, *, is_main: bool = True) -> Iterator[OfFile]:
    """Yield the files that a table needs and that are missing, too short or broken.

    A missing file that has the names of the model is reported as unread instead.
    """
    lost = lost_files(snapshot, table)
    if lost and (table.tensors or not is_main):
        yield BadIndex(file=table.file, reason=lost_reason(table, lost))
    sizes = {file.name: file.size for file in snapshot.files}
    broken = {head.name: head.parsed for head in snapshot.pickles}
    for path, least, instead in table.needs:
        size, file = sizes.get(path), path if path in broken else instead
        fault = broken.get(file)
        if size is not None and size < least:
            how = f"it has {size:,} bytes, and {named(table.file)} needs {least:,}"
            yield BadSize(file=path, reason=f"{named(path)} is truncated: {how}")
        elif isinstance(fault, CheckpointError) and not isinstance(fault, _OF_CODE):
            yield BadHeader(file=file, reason=str(fault))


def _latest(snapshot: Snapshot, table: Table) -> Iterator[OfFile]:
    """Yield a finding if DeepSpeed's file `latest` names a folder that is missing."""
    above = folder_of(folder_of(table.file).rstrip("/"))
    for companion in snapshot.companions or ():
        if companion.name != f"{above}{LATEST}" or companion.content is None:
            continue
        tag = companion.content.decode(errors="replace").strip()
        if not any(file.name.startswith(f"{above}{tag}/") for file in snapshot.files):
            there = named(folder_of(table.file).rstrip("/"))
            reason = f"{named(companion.name)} names {quoted(tag)}, which is missing; {there} is"
            yield BadIndex(file=companion.name, reason=f"{reason} there")


def _trainer_state(snapshot: Snapshot) -> Iterator[Finding]:
    """Yield a finding if the Trainer's folder checkpoint-N was saved at another step."""
    folder = _STEP.fullmatch(PurePath(snapshot.model).name)
    for companion in snapshot.companions or ():
        step = _GLOBAL_STEP.search(companion.content or b"")
        if not (folder and step and companion.name == TRAINER_STATE):
            continue
        if int(step[1]) != int(folder[1]):
            value = step[1].decode()
            reason = f"global_step is {value}, and the folder is {folder[0]}"
            yield ConfigContradiction(
                says=((TRAINER_STATE, "global_step", value), (folder[0], "folder", folder[1])),
                reason=f"{reason}: its files are of two checkpoints, or it was renamed",
                fix="resume from the folder whose number is that of its trainer_state.json",
            )


def _optimizer(snapshot: Snapshot, tensors: Collection[StoredTensor]) -> Iterator[Finding]:
    """Yield a finding if the optimizer has more parameters than the weights beside it.

    Fewer are normal, because frozen parameters have no state. Adapters are left out, because a
    prompt may be trained by layers that are not saved, and so are packed weights.
    """
    config = snapshot.config
    is_adapter = config is not None and file_name(config.name) == ADAPTER_CONFIG
    if is_adapter or any(one.dtype in _PACKED for one in tensors):
        return
    inside = {folder_of(head.name) for head in snapshot.headers}
    for head in snapshot.pickles:
        is_beside = file_name(head.name) in _OPTIMIZERS and folder_of(head.name) in inside
        if not (is_beside and isinstance(head.parsed, Table)):
            continue
        lengths: dict[str, int] = {}
        for one in head.parsed.tensors:
            if match := _AS_LONG.fullmatch(one.name):
                lengths[match[1]] = max(lengths.get(match[1], 0), one.elements or 0)
        count, stored = sum(lengths.values()), sum(map(learned, tensors))
        if count > stored > 0:
            reason = f"the optimizer has the state of {count:,} parameters, the weights {stored:,}"
            yield ConfigContradiction(
                says=((head.name, "parameters", f"{count}"),),
                reason=f"{reason}: they are not of one checkpoint, or the weights are incomplete",
                fix="take the weights and the optimizer of one save",
            )
