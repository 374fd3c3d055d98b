"""The parsed contents of a snapshot: broken parts become findings or unread files."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cached_property, partial
from itertools import chain
from types import MappingProxyType
from typing import NamedTuple

from msgspec import Struct, field
from msgspec.structs import replace

from auditor.checkpoint.filenames import based_weights, named_weights, variant_of
from auditor.checkpoint.selecting import INDEX, PIECES, TORCH_INDEX, TORCH_WEIGHTS, WEIGHTS
from auditor.checkpoint.snapshot import Snapshot, WeightHeader
from auditor.containers.index import Index
from auditor.containers.safetensors import Header, size_fault
from auditor.containers.weight_formats import Table, UnsafeFileError
from auditor.errors import CheckpointError
from auditor.findings import BadHeader, BadIndex, BadSize, Finding, OfFile, OfImports, Unsafe
from auditor.layouts.packing import Declared
from auditor.messages import listed, named, quoted
from auditor.names.parts import folder_of
from auditor.reconciler.training_rules import (
    joining_notes,
    lost_files,
    lost_reason,
    training_findings,
)
from auditor.tensors import StoredTensor, natural_key

# Layouts whose loaders need no index of the files.
_WITHOUT_INDEX = frozenset({"mlx", "metal"})
_SHOWN_IMPORTS = 3  # the most imports that a reason names; the finding lists all


class Unread(NamedTuple):
    """A weight file that could not be read, and the stored names in it."""

    finding: Callable[..., OfFile | OfImports]
    file: str
    reason: str
    names: frozenset[str] | None  # by the index; None if the file may contain any name


class Contents(Struct, frozen=True, kw_only=True, dict=True):
    """The stored tensors of a snapshot, and the files that could not be read."""

    tensors: tuple[StoredTensor, ...]
    index: Index | None = None
    opened: frozenset[str] = frozenset()  # weight files with a readable header
    unread: tuple[Unread, ...] = ()
    unread_files: int = 0  # unreadable files, and one Unread for all missing shards
    findings: tuple[Finding, ...] = ()  # about files whose size differs from their header's
    names_only: bool = False  # whether some shards are missing and the index lists their names
    unnamed: tuple[str, ...] = ()  # files outside the index that are read instead of missing shards
    variant: str | None = None  # such as "fp16"; None for the weights that load by default
    notes: tuple[str, ...] = ()  # sentences about how files were read
    # A stored name -> another name in its file that has identical bytes.
    shared: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))

    @cached_property
    def without_header(self) -> tuple[StoredTensor, ...]:
        """The names that the index places in unread files, as tensors without shape and dtype."""
        stored = {tensor.name for tensor in self.tensors} if self.unread else ()
        return tuple(
            StoredTensor(name, None, None, None, item.file, None)
            for item in self.unread
            for name in sorted(item.names or ())
            if name not in stored
        )

    @property
    def holds_unknown(self) -> bool:
        """Whether a file could not be read and no index lists the names in it."""
        return any(item.names is None for item in self.unread)

    @property
    def empty(self) -> bool:
        """Whether there is neither a weight file nor an index."""
        return not (self.tensors or self.unread or self.opened)


def contents(snapshot: Snapshot) -> Contents:
    """Parse the index and the headers; the faults of a broken checkpoint become findings."""
    index, unread = _index(snapshot)
    # The file that represents the audited set: the index, or the only weight file.
    first = min((file.name for file in snapshot.headers), default="")
    chosen = snapshot.index.name if snapshot.index else first
    variant = variant_of(chosen)
    parsed = [(file, _header(file)) for file in snapshot.headers]
    headers = [header for _, header in parsed if not isinstance(header, str)]
    tables = [file.parsed for file in snapshot.headers if isinstance(file.parsed, Table)]
    broken = [(file, why) for file, why in parsed if isinstance(why, str)]
    absent, elsewhere = _not_opened(snapshot, index) if index else ((), frozenset())
    placed = names_by_shard(index) if index and (broken or absent) else {}
    unread += _lost_states(snapshot, tables)
    unread += [_broken(file, why, placed.get(file.name) if index else None) for file, why in broken]
    unnamed = _unnamed(snapshot, index) if index and absent else ()
    fault = index.hub_fault if index else None
    if index and absent:
        unread.append(_absent(index, absent, placed, unnamed))
    tensors = (
        *chain.from_iterable(header.tensors for header in headers),
        *(_names(index, elsewhere) if index and elsewhere else ()),
    )
    return Contents(
        tensors=tensors,
        index=index,
        opened=frozenset(header.file for header in headers),
        unread=tuple(unread),
        unread_files=len(unread) + max(len(absent) - 1, 0),
        findings=(
            *_sizes(parsed),
            *chain.from_iterable(map(table_findings, tables)),
            *training_findings(snapshot, tables, tensors),
            *(_lone_index(snapshot, index) if index else ()),
            *(_foreign_shards(index, elsewhere) if index else ()),
            *((BadIndex(file=chosen, reason=fault),) if fault and not snapshot.partial else ()),
        ),
        names_only=bool(elsewhere),
        unnamed=unnamed,
        variant=variant,
        notes=(
            *_variant_notes(variant, chosen),
            *((fault,) if fault and snapshot.partial else ()),
            *name_notes(snapshot),
            *chain.from_iterable(table.notes for table in tables),
            *joining_notes(snapshot, tables),
        ),
        shared=MappingProxyType(
            dict(chain.from_iterable(table.shared.items() for table in tables))
        ),
    )


def _variant_notes(variant: str | None, file: str) -> Iterator[str]:
    """Yield a note on how to load a variant; without `variant=` loading uses other files."""
    if variant:
        call = f'from_pretrained(..., variant="{variant}")'
        yield f"the variant {variant} is audited, {named(file)}: load it with {call}"


def table_findings(table: Table) -> Iterator[Finding]:
    """Yield the faults of a torch file, and imports in it that weights do not need."""
    for names, reason in table.faults:
        yield BadHeader(file=table.file, reason=reason, tensors=names)
    if table.imports:
        yield Unsafe(file=table.file, reason=_unsafe(table), imports=table.imports)


def _lost_states(snapshot: Snapshot, tables: Iterable[Table]) -> Iterator[Unread]:
    """Yield the missing files that have the names of the model."""
    for table in tables:
        lost = lost_files(snapshot, table) if table.to_do and not table.tensors else []
        if lost:
            yield Unread(BadIndex, lost[0], lost_reason(table, lost), None)


def unsafe_finding(file: WeightHeader) -> OfImports | None:
    """Return the finding for a file that may run code; None if it was checked and runs none."""
    match file.parsed:
        case UnsafeFileError() as error:
            return Unsafe(file=file.name, reason=_unsafe_error(error), imports=error.imports)
        case Table() as table if table.imports:
            return Unsafe(file=file.name, reason=_unsafe(table), imports=table.imports)
        case _:
            return None


def _unsafe(table: Table) -> str:
    return (
        f"loading {named(table.file)} as a pickle would import or call "
        f"{_listed_imports(table.imports)}: no state dict needs that, and "
        f"torch.load(weights_only=True) refuses it"
    )


def _unsafe_error(error: UnsafeFileError) -> str:
    imports = _listed_imports(error.imports)
    return f"{error}; loading it would import or call {imports}" if imports else str(error)


def _listed_imports(imports: tuple[str, ...]) -> str:
    more = len(imports) - _SHOWN_IMPORTS
    return "; ".join(imports[:_SHOWN_IMPORTS]) + (f"; and {more:,} more" if more > 0 else "")


def _not_opened(snapshot: Snapshot, index: Index) -> tuple[tuple[str, ...], frozenset[str]]:
    """Return the missing shards, and the unread shards of which only the names are compared.

    If no file of the index exists, its names and totals are compared, and `_lone_index` reports it.
    """
    shards = frozenset(index.shards)
    if _is_alone(snapshot, index):
        return (), shards
    absent = tuple(snapshot.unopened)
    if not snapshot.partial:
        return absent, frozenset()
    return absent, shards.difference((file.name for file in snapshot.headers), absent)


def _is_alone(snapshot: Snapshot, index: Index) -> bool:
    """Whether no file of the index exists and no other file is read instead."""
    shards = frozenset(index.shards)
    return bool(shards) and not snapshot.headers and shards.issubset(snapshot.unopened)


def _lone_index(snapshot: Snapshot, index: Index) -> Iterator[OfFile]:
    if _is_alone(snapshot, index):
        reason = f"{no_file_of(index)}: {listed(index.shards)}; every loader fails"
        names = tuple(sorted(index.weight_map, key=natural_key))
        yield BadIndex(file=index.file, reason=reason, tensors=names)


def no_file_of(index: Index) -> str:
    """Return the clause which states that none of the index's files is present."""
    count = len(index.shards)
    of_index = f"that {named(index.file)} names is"
    return (
        f"the file {of_index} not here"
        if count == 1
        else f"none of the {count:,} files {of_index} here"
    )


def _unnamed(snapshot: Snapshot, index: Index) -> tuple[str, ...]:
    shards = frozenset(index.shards)
    return tuple(file.name for file in snapshot.headers if file.name not in shards)


def _index(snapshot: Snapshot) -> tuple[Index | None, list[Unread]]:
    if snapshot.index is None:
        return None, []
    file = snapshot.index.name
    try:
        return _from_root(snapshot.index.as_index), []
    except CheckpointError as error:
        return None, [Unread(BadIndex, file, str(error), None)]


def _from_root(index: Index) -> Index:
    """Turn the shards of an index, relative to its folder, into paths in the repository."""
    folder = folder_of(index.file)
    if not folder:
        return index
    paths = {name: f"{folder}{shard}" for name, shard in index.weight_map.items()}
    return replace(index, weight_map=MappingProxyType(paths))


def _header(file: WeightHeader) -> Header | Table | str:
    """Return the header, or the reason why it cannot be read."""
    parsed = file.parsed
    if isinstance(parsed, UnsafeFileError):
        return _unsafe_error(parsed)
    if isinstance(parsed, CheckpointError):
        return str(parsed)
    return parsed


def _sizes(parsed: Iterable[tuple[WeightHeader, Header | Table | str]]) -> Iterator[Finding]:
    for file, header in parsed:
        if isinstance(header, Header) and (fault := size_fault(header, file.size)):
            yield BadSize(file=file.name, reason=fault)
        elif isinstance(header, Table):
            yield from (BadSize(file=file.name, reason=fault) for fault in header.size_faults)


def names_by_shard(index: Index) -> dict[str, list[str]]:
    """Group the names in the index by shard."""
    names: dict[str, list[str]] = {}
    for name, shard in index.weight_map.items():
        names.setdefault(shard, []).append(name)
    return names


def _broken(file: WeightHeader, why: str, names: list[str] | None) -> Unread:
    kind: Callable[..., OfFile | OfImports] = BadSize if file.size == 0 else BadHeader
    if isinstance(file.parsed, UnsafeFileError):
        kind = partial(Unsafe, imports=file.parsed.imports)
    return Unread(kind, file.name, why, None if names is None else frozenset(names))


def _absent(
    index: Index,
    shards: tuple[str, ...],
    placed: dict[str, list[str]],
    unnamed: tuple[str, ...],
) -> Unread:
    names = frozenset(chain.from_iterable(placed.get(shard, ()) for shard in shards))
    verb = "is" if len(unnamed) == 1 else "are"
    instead = f"; {listed(unnamed)}, which it does not name, {verb} read instead" if unnamed else ""
    if len(shards) == 1:
        shard = shards[0]
        reason = (
            f"{index.file} places {len(names)} tensors in {shard}, and that file does not exist"
        )
        return Unread(BadIndex, shard, f"{reason}{instead}", names)
    reason = (
        f"{len(shards)} of the {len(set(index.weight_map.values()))} shards that {index.file} "
        f"names are not there, {listed(shards)}; {len(names)} tensors should be in them{instead}"
    )
    return Unread(BadIndex, index.file, reason, names)


def _foreign_shards(index: Index, elsewhere: frozenset[str]) -> Iterator[Finding]:
    """Yield findings for shards whose file names show another format than the index has."""
    if not index.file.endswith(".safetensors.index.json"):
        return
    foreign = sorted(shard for shard in elsewhere if not shard.endswith(".safetensors"))
    placed = names_by_shard(index) if foreign else {}
    for shard in foreign:
        where = f"{quoted(shard)}, which is not a safetensors file"
        reason = f"places {len(placed[shard])} tensors in {where}"
        names = tuple(sorted(placed[shard], key=natural_key))
        yield BadIndex(file=index.file, reason=f"{named(index.file)} {reason}", tensors=names)


def _names(index: Index, shards: frozenset[str]) -> Iterator[StoredTensor]:
    for name in sorted(index.weight_map):
        if index.weight_map[name] in shards:
            yield StoredTensor(name, None, None, None, index.weight_map[name], None)


# --- file names that only some loaders look for ------------------------------------------------


def pipeline_file(snapshot: Snapshot) -> str | None:
    """Return the file that diffusers loads into a pipeline without a config, else None."""
    if snapshot.config is not None:
        return None
    return next((file.name for file in snapshot.headers if file.name in PIECES), None)


def name_notes(snapshot: Snapshot) -> Iterator[str]:
    """Yield a note if a config file names weights that have no usual file name."""
    names = {file.name for file in snapshot.files}
    config = snapshot.config
    chosen = {file.name for file in snapshot.headers}
    chosen |= {snapshot.index.name} if snapshot.index else set()
    weights = named_weights(config, names)
    if config and weights and (name := weights.weights or weights.index) in chosen:
        yield f"{config.name} names {named(name or '')} in transformers_weights"
        return
    for text in (snapshot.packing, config):
        weights = based_weights(text, names) if text else None
        name = (weights.weights or weights.index) if weights else None
        if text and name in chosen and not name.startswith(("model.", "pytorch_model.")):
            yield f"{named(name)} has the base name that {text.name} gives: AutoGPTQ loads it"
            return


def unindexed_files(snapshot: Snapshot, declared: Declared | None) -> Iterator[OfFile]:
    """Report weight files without an index, which transformers cannot find."""
    files = [file.name for file in snapshot.headers]
    own = declared is not None and declared.method in _WITHOUT_INDEX
    if snapshot.index is not None or len(files) < 2 or own:  # noqa: PLR2004 - several
        return
    if all(name.endswith(".safetensors") for name in files):
        reader, weights, index = "mlx_lm reads them, and ", WEIGHTS, INDEX
    elif all(name.endswith(".bin") for name in files):
        reader, weights, index = "", TORCH_WEIGHTS, TORCH_INDEX
    else:
        return
    reason = f"no index names {listed(files)}: {reader}transformers looks for {weights} or {index}"
    yield BadIndex(file=index, reason=reason)
