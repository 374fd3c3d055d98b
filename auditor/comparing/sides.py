"""A side of a comparison: a checkpoint's tensors as loaded, its config and its other settings."""

from collections.abc import Callable, Iterator, Mapping
from math import prod
from typing import Any, NamedTuple

from msgspec import Struct

from auditor.checkpoint.snapshot import Snapshot
from auditor.companions.companion_files import GENERATION
from auditor.companions.reading import Companions
from auditor.errors import CheckpointError, Reason, SourceError
from auditor.layouts import unknown_quantization, unpack_tensors
from auditor.layouts.declared import declaration
from auditor.layouts.packing import Declared, Implied, LogicalTensor
from auditor.reconciler.contents import contents
from auditor.tensors import StoredTensor, learned


class SideTensor(NamedTuple):
    """A tensor of one checkpoint as loaded: a packed weight with its scales is one tensor."""

    shape: tuple[int, ...] | None  # None: only an index names the tensor, or its shape is unknown
    dtype: str | None
    file: str
    parameters: int


class Side(Struct, frozen=True, kw_only=True):
    """A checkpoint on either side of a comparison."""

    model: str
    tensors: Mapping[str, SideTensor]
    config: Mapping[str, Any]
    layout: str | None = None  # how the weights are packed
    files: frozenset[str] = frozenset()
    stored: Mapping[str, StoredTensor] = {}  # the tensors as stored, the first of each name
    packed: Mapping[str, LogicalTensor] = {}  # packed tensors by their unpacked names
    declared: Declared | None = None
    # Settings of other files, such as the end tokens in generation_config.json, by path.
    companions: Mapping[str, Any] | None = None  # None: not read
    is_gguf: bool = False  # whether the config was derived from metadata, which lack most keys
    unchecked: tuple[str, ...] = ()  # what is not compared

    @property
    def model_type(self) -> str | None:
        model_type = self.config.get("model_type")
        return model_type if isinstance(model_type, str) else None


def side_of(
    snapshot: Snapshot,
    *,
    config: Mapping[str, Any] | None = None,
    declared: Declared | None = None,
    implied: Implied = lambda _name: None,
) -> Side:
    """Return a checkpoint's tensors and config; raise SourceError if it has nothing to compare.

    `config` and `declared` are those of a GGUF file, which has no config.json. `implied` returns
    the shape of a tensor that packing does not show.
    """
    stored, model = contents(snapshot), snapshot.model
    if stored.empty:
        raise SourceError(Reason.NO_WEIGHTS, f"{model} has no weights to compare")
    if stored.unread:
        names = ", ".join(sorted(item.file for item in stored.unread)[:3])
        raise SourceError(Reason.UNREADABLE, f"{model}: {names} cannot be read")
    is_gguf = config is not None
    file = snapshot.config
    try:
        if config is None:
            config = file.object if file else {}
            declared = declaration(config, snapshot.packing)
        packer = unknown_quantization(declared) if declared else None
        if packer is not None:
            raise SourceError(Reason.UNKNOWN_LAYOUT, f"{model} is packed by {packer}")
        unpacked = unpack_tensors(stored.tensors, declared, implied)
    except CheckpointError as error:
        raise SourceError(Reason.UNKNOWN_LAYOUT, f"{model}: {error}") from None
    packed_names = {piece.stored.name for piece in unpacked.tensors}
    packed_names |= {note.name for data in unpacked.quantization_data for note in data.tensors}
    tensors = {
        tensor.name: _plain(tensor) for tensor in stored.tensors if tensor.name not in packed_names
    }
    for piece in unpacked.tensors:
        count = prod(piece.shape) if piece.shape is not None else 0
        tensors[piece.name] = SideTensor(piece.shape, piece.dtype, piece.stored.file, count)
    return Side(
        model=model,
        tensors=tensors,
        config=config,
        layout=unpacked.layout if unpacked.tensors else None,
        files=frozenset(tensor.file for tensor in stored.tensors),
        stored={tensor.name: tensor for tensor in reversed(stored.tensors)},
        packed={piece.name: piece for piece in unpacked.tensors},
        declared=declared,
        companions=None if is_gguf else companion_settings(snapshot),
        is_gguf=is_gguf,
        unchecked=tuple(_unchecked(snapshot)),
    )


def _plain(tensor: StoredTensor) -> SideTensor:
    count = (tensor.elements or 0) if learned(tensor) else 0
    return SideTensor(tensor.shape, tensor.dtype, tensor.file, count)


def _unchecked(snapshot: Snapshot) -> Iterator[str]:
    if snapshot.components:
        yield f"the {len(snapshot.components):,} models in folders of {snapshot.model}"
    for file in snapshot.companions or ():
        if file.content is None:
            yield f"{file.name} of {snapshot.model}: {file.unread}"


def stored_pairs(
    before: Side, after: Side, renamed: Callable[[str], str]
) -> Iterator[tuple[StoredTensor, StoredTensor]]:
    """Yield the stored tensors of both sides with one name, dtype and shape."""
    for name, tensor in before.stored.items():
        other = after.stored.get(renamed(name))
        form = (tensor.dtype, tensor.shape)
        if other is not None and tensor.dtype and form == (other.dtype, other.shape):
            yield tensor, other


# --- other files --------------------------------------------------------------------------------


def companion_settings(snapshot: Snapshot) -> Mapping[str, Any] | None:
    """Return what other files set: end tokens and the like, and chat templates, by path.

    Return None if these files were not read.
    """
    if snapshot.companions is None:
        return None
    companions = Companions.of(snapshot.companions)
    generation = companions.object(GENERATION) or {}
    settings: dict[str, Any] = {f"{GENERATION}: {key}": value for key, value in generation.items()}
    for (_, name), text in companions.templates.items():
        settings.setdefault(f"chat template {name}", text)
    return settings
