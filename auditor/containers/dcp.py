"""The reader of torch.distributed.checkpoint (DCP): `.metadata`, a pickle that is never loaded.

It has names, shapes and dtypes of all tensors, the chunks of each, and for each chunk the file
beside it (`__RANK_N.distcp`) with offset and length; planner_data has the keys of the saved dicts
that lead to a tensor. torch loads a tensor whose chunks leave a gap without a word, as memory that
nobody wrote.
"""

import gc
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from math import prod
from typing import NamedTuple

from auditor.bounded.pickle_machine import follow_pickle
from auditor.bounded.pickle_names import FollowedPickle, PickledDict
from auditor.containers.dcp_entries import (
    Chunk,
    EntryShortcut,
    Shape,
    StoredPlace,
    TensorEntry,
    attributes,
    is_object,
    stored_place,
    tensor_entry,
)
from auditor.containers.index import MAX_NAMES, shard_fault
from auditor.containers.saved_dicts import ModelPart, model_of
from auditor.containers.torch_tensors import DTYPES
from auditor.containers.weight_formats import (
    METADATA,
    NeededFile,
    PartialFile,
    Table,
    TensorFault,
    UnsafeFileError,
    not_followed,
)
from auditor.errors import CheckpointError, Reason, SourceError
from auditor.messages import named, quoted
from auditor.names.parts import file_name, folder_of
from auditor.tensors import Span, StoredTensor, names_fault

# Bytes of .metadata. A tensor that one rank saved takes 240, so there is room for 90,000.
MAX_METADATA = 22 * 1024 * 1024
_CLASS = "torch.distributed.checkpoint.metadata.Metadata"
_OF_ACCELERATE = re.compile(r"(^|/)pytorch_model_fsdp_\d+/")
_MOST_PAIRS = 2_000_000  # pairs of chunks that are compared


def parse(file: str, sparse: PartialFile) -> Table:
    """Return the model's tensors; a .distcp file alone has none. Raise CheckpointError for others.

    The error is UnsafeFileError if unpickling the file may run code. Raise SourceError(too-large)
    for a file that is longer than MAX_METADATA.
    """
    if file_name(file) != METADATA:
        needs = (NeededFile(f"{folder_of(file)}{METADATA}"),)
        note = (
            f"{named(file)} is a part of a distributed checkpoint of torch (DCP); its {METADATA}, "
            "which is written last, has the names of the tensors"
        )
        return Table(file=file, tensors=(), needs=needs, to_do=_to_do(file, ()), notes=(note,))
    if sparse.size > MAX_METADATA:
        detail = f"{named(file)} has {sparse.size:,} bytes, expected at most {MAX_METADATA:,}"
        raise SourceError(Reason.TOO_LARGE, detail)
    was_enabled = gc.isenabled()
    gc.disable()  # a million small tuples, none of which is garbage: it takes a sixth of the time
    try:
        return _parsed(file, sparse.read(Span(0, sparse.size)))
    finally:
        if was_enabled:
            gc.enable()


def _parsed(file: str, data: bytes) -> Table:
    metadata = _metadata(file, data)
    tensors, places = _tensors(file, metadata), list(_places(file, metadata))
    model = model_of(tensors, _keys(metadata))
    faults = [
        *_path_faults(places),
        *_faults(tensors, {(one.name, one.offsets): one for one in places}, model.names),
        *_overlaps(places),
    ]
    needs = tuple(_needs(file, places))
    return Table(
        file=file,
        tensors=tuple(_stored(file, model.names, tensors)),
        faults=tuple(TensorFault(names, f"{named(file)}: {reason}") for names, reason in faults),
        notes=(_note(file, model, needs),),
        needs=needs,
        to_do=_to_do(file, [one for one in places if one.offsets is None]),
    )


def _metadata(file: str, data: bytes) -> Mapping[str, object]:
    """Return the attributes of the pickled Metadata."""
    if not data:
        raise CheckpointError(f"{named(file)} is empty: 0 bytes")
    pickle = follow_pickle(data, 0, EntryShortcut(data))
    if pickle.fault:  # the usual form may have been taken for another one
        pickle = follow_pickle(data)
    if pickle.outside:
        raise UnsafeFileError(f"{named(file)} is a pickle", pickle.outside)
    if pickle.fault and pickle.fault.may_go_on:
        raise not_followed(file, f"is a pickle that {pickle.fault.reason}")
    metadata = None if pickle.fault else attributes(pickle.value, _CLASS)
    if metadata is None or not isinstance(metadata.get("state_dict_metadata"), PickledDict):
        raise CheckpointError(f"{named(file)} {_not_metadata(pickle)}")
    return metadata


def _not_metadata(pickle: FollowedPickle) -> str:
    if pickle.fault is None:
        return "is a pickle, and not the .metadata of torch.distributed.checkpoint"
    cut = "is truncated: it " if pickle.fault.truncated else "is a pickle that "
    return f"{cut}{pickle.fault.reason}"


def _pairs(metadata: Mapping[str, object], key: str) -> list[tuple[object, object]]:
    value = metadata.get(key)
    return value.pairs if isinstance(value, PickledDict) else []


def _tensors(file: str, metadata: Mapping[str, object]) -> dict[str, TensorEntry]:
    """Return all saved tensors by name; the last counts if a name is repeated."""
    tensors: dict[str, TensorEntry] = {}
    for name, value in _pairs(metadata, "state_dict_metadata"):
        entry = tensor_entry(value)
        if entry is None and is_object(value):
            continue
        if entry is None or not isinstance(name, str):
            raise CheckpointError(f"{named(file)} has an entry that no version of torch writes")
        tensors[name] = entry
    if len(tensors) > MAX_NAMES:
        raise CheckpointError(f"{named(file)} has {len(tensors):,} tensors, at most {MAX_NAMES:,}")
    if fault := names_fault(tensors):
        raise CheckpointError(f"{named(file)} {fault}")
    return tensors


def _places(file: str, metadata: Mapping[str, object]) -> Iterator[StoredPlace]:
    for key, value in _pairs(metadata, "storage_data"):
        place = stored_place(key, value)
        if place is None:
            raise CheckpointError(f"{named(file)} has a place that no version of torch writes")
        yield place


def _keys(metadata: Mapping[str, object]) -> dict[str, tuple[str, ...]]:
    """Return the keys of the saved dicts that lead to each tensor, if there are several."""
    return {
        name: tuple(map(str, keys))
        for name, keys in _pairs(metadata, "planner_data")
        if isinstance(name, str)
        and isinstance(keys, tuple)
        and len(keys) > 1
        and all(isinstance(key, str | int) for key in keys)
    }


def _stored(
    file: str, names: Mapping[str, str], tensors: Mapping[str, TensorEntry]
) -> Iterator[StoredTensor]:
    """Yield the model's tensors, sorted; they have no span, because their chunks are elsewhere."""
    for full, name in sorted(names.items(), key=lambda item: item[1]):
        dtype, shape, _ = tensors[full]
        stored = DTYPES.get(dtype, (dtype.upper(), 0))[0]
        yield StoredTensor(name, stored, shape, prod(shape), file, None)


def _needs(file: str, places: Iterable[StoredPlace]) -> Iterator[NeededFile]:
    """Yield the files that have the chunks, with the bytes that they need."""
    least: dict[str, int] = {}
    for place in places:
        least[place.path] = max(least.get(place.path, 0), place.span.stop)
    for path, size in sorted(least.items()):
        if shard_fault(path) is None:
            yield NeededFile(f"{folder_of(file)}{path}", size)


# --- faults --------------------------------------------------------------------------------------


def _path_faults(places: Iterable[StoredPlace]) -> Iterator[TensorFault]:
    """Yield a fault for each name of a file that is not in or below the checkpoint's folder."""
    for path in dict.fromkeys(place.path for place in places):
        if fault := shard_fault(path):
            where = fault.replace("the index", METADATA)
            yield TensorFault((), f"the file {quoted(path)} of its chunks {where}")


def _faults(
    tensors: Mapping[str, TensorEntry],
    places: Mapping[tuple[str, Shape | None], StoredPlace],
    names: Mapping[str, str],
) -> Iterator[TensorFault]:
    """Yield the tensors whose chunks leave a gap, overlap, or have no place in a file, by kind."""
    budget = _MOST_PAIRS
    found: dict[str, list[tuple[str, str]]] = {}
    for full, (dtype, shape, chunks) in tensors.items():
        fault = None
        if len(chunks) != 1 or chunks[0].sizes != shape or any(chunks[0].offsets):
            budget -= len(chunks) ** 2
            fault = _cover_fault(shape, chunks, is_compared=budget > 0)
        if fault is None:
            width = DTYPES.get(dtype, ("", 0))[1]
            of_chunks = (
                _place_fault(places.get((full, one.offsets)), one, width) for one in chunks
            )
            fault = next(filter(None, of_chunks), None)
        if fault:
            found.setdefault(fault.kind, []).append((full, fault.detail))
    for kind, pairs in found.items():
        full, detail = pairs[0]
        own = tuple(names[one] for one, _ in pairs if one in names)
        subject = f"tensor {quoted(names.get(full, full))}"
        more = f"; {len(pairs) - 1:,} more like it" if len(pairs) > 1 else ""
        yield TensorFault(own, f"{subject} {kind}: {detail}{more}")


class _Fault(NamedTuple):
    """A fault of a tensor: what is wrong, beginning with a verb, and the numbers."""

    kind: str
    detail: str


def _place_fault(place: StoredPlace | None, chunk: Chunk, width: int) -> _Fault | None:
    """Return why the bytes of a chunk are not in a file, else None."""
    if place is None:
        return _Fault("has a chunk without a place in a file", f"the chunk at {chunk.offsets}")
    least = width * prod(chunk.sizes)
    if place.span.length >= least or place.is_packed:
        return None
    detail = f"{place.span.length:,} in {named(place.path)}, expected {least:,} or more"
    return _Fault("has a chunk with too few bytes", detail)


def _cover_fault(shape: Shape, chunks: tuple[Chunk, ...], *, is_compared: bool) -> _Fault | None:
    """Return why the chunks are not exactly the tensor; None if they are."""
    for offsets, sizes in chunks:
        ends = zip(offsets, sizes, shape, strict=False)
        if not len(offsets) == len(sizes) == len(shape) or any(o + s > n for o, s, n in ends):
            detail = f"shape {sizes} at {offsets}, and the tensor's shape is {shape}"
            return _Fault("has a chunk outside of its shape", detail)
    covered, total = sum(prod(chunk.sizes) for chunk in chunks), prod(shape)
    if covered < total:
        detail = (
            f"its {len(chunks):,} chunks have {covered:,} of {total:,} elements of {shape}, and "
            "loading leaves the others uninitialized"
        )
        return _Fault("is incomplete", detail)
    if covered > total or (is_compared and _has_overlap(chunks)):
        detail = f"{covered:,} elements for {total:,} of {shape}"
        return _Fault("has chunks that overlap", detail)
    return None


def _has_overlap(chunks: Iterable[Chunk]) -> bool:
    """Return whether two chunks have an element in common."""
    active: list[Chunk] = []
    for chunk in sorted(one for one in chunks if prod(one.sizes)):
        if not chunk.sizes:
            active.append(chunk)
            if len(active) > 1:
                return True
            continue
        active = [one for one in active if one.offsets[0] + one.sizes[0] > chunk.offsets[0]]
        if any(_overlap(one, chunk) for one in active):
            return True
        active.append(chunk)
    return False


def _overlap(first: Chunk, second: Chunk) -> bool:
    sides = zip(*first, *second, strict=True)
    return all(a < b + of_b and b < a + of_a for a, of_a, b, of_b in sides)


def _overlaps(places: Iterable[StoredPlace]) -> Iterator[TensorFault]:
    """Yield a fault for each file in which two entries have bytes in common."""
    spans: dict[str, list[Span]] = {}
    for place in places:
        spans.setdefault(place.path, []).append(place.span)
    for path, of_file in spans.items():
        of_file.sort()
        pair = next((pair for pair in pairwise(of_file) if pair[1].start < pair[0].stop), None)
        if pair and pair[0].length and pair[1].length:
            first, second = (f"{one.start:,} to {one.stop:,}" for one in pair)
            yield TensorFault((), f"two chunks share bytes of {named(path)}: {first}, and {second}")


# --- what it is, and what to do ------------------------------------------------------------------


def _note(file: str, model: ModelPart, needs: Sequence[NeededFile]) -> str:
    """Return a sentence about the checkpoint."""
    below = f" under {quoted(model.prefix)}" if model.prefix else ""
    beside = f"; next to them are {', '.join(model.others)}" if model.others else ""
    count = f"{len(model.names):,} tensors of the model{below} in {_files(len(needs))}"
    what = f"a distributed checkpoint of torch (DCP): {count}{beside}"
    return f"{named(file)} is {what}; from_pretrained does not read it"


def _to_do(file: str, objects: Sequence[StoredPlace]) -> str:
    """Return how the tensors are joined, and what that unpickles."""
    joins = "dcp_to_torch_save (torch.distributed.checkpoint.format_utils)"
    if _OF_ACCELERATE.search(file):
        joins = "accelerate merge-weights or dcp_to_torch_save"
    if not objects:
        return f"{joins} joins it"
    return (
        "torch.distributed.checkpoint.load reads its tensors into the model's state dict; "
        f"{joins} also unpickles {len(objects):,} objects in its files, which were not followed"
    )


def _files(count: int) -> str:
    return f"{count:,} file{'' if count == 1 else 's'}"
