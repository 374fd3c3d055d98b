"""Weight files outside the audited set: variants, other frameworks and formats, torch copies.

Names alone decide which files are not in the audited set: such files are not opened or counted. A
copy of the weights in torch files is compared if it was read.
"""

import re
from collections.abc import Collection, Iterable, Iterator, Sequence
from pathlib import PurePosixPath

from auditor.checkpoint.filenames import torch_model_files, variant_of
from auditor.checkpoint.other_formats import format_faults
from auditor.checkpoint.selecting import ADAPTER_CONFIG, ADAPTERS, other_weight_files
from auditor.checkpoint.shard_names import Split, split_of
from auditor.checkpoint.snapshot import Snapshot
from auditor.containers.other_formats import formats_by_name
from auditor.containers.weight_formats import ANSWER, Table, UnfollowedError, may_have_code
from auditor.errors import CheckpointError
from auditor.findings import (
    AdapterBeside,
    BadHeader,
    BadSize,
    CopyDiffers,
    Finding,
    MissingComponent,
    OfFile,
    OfFiles,
    OfFolders,
    OfImports,
    OtherWeights,
)
from auditor.messages import listed, named
from auditor.names.parts import folder_of
from auditor.reconciler.contents import Contents, table_findings, unsafe_finding
from auditor.tensors import learned, natural_key

# Files that are left out only if the user has named other files to audit.
_DEFAULT = r"(?:diffusion_pytorch_)?model\.safetensors"
_TORCH = r"(?:diffusion_)?pytorch_model(?:-[0-9]{5}-of-[0-9]{5})?\.bin(?:\.index\.json)?"
_SHARDS = r"(?:diffusion_pytorch_)?model-[0-9]{5}-of-[0-9]{5}\.safetensors"
_OWN_INDEX = r"(?:diffusion_pytorch_)?model\.safetensors\.index\.json"
_INDEX = "an index of other weights than the audited ones"
_ORIGINAL = "the original format, of which the audited files were made"


def other_weights(snapshot: Snapshot) -> Iterator[OfFiles | OfFile | OfImports]:
    """Yield findings for unsafe files, incomplete copies, and each kind of unaudited file."""
    yield from unsafe_pickles(snapshot)
    for fault in format_faults(snapshot):
        yield CopyDiffers(file=fault.file, reason=fault.reason)
    files_by_split = _incomplete_copies(snapshot)
    for split, files in sorted(files_by_split.items()):
        yield _incomplete(split, sorted(files))
    audited = [file.name for file in snapshot.headers]
    audited += [snapshot.index.name] if snapshot.index else []
    first = min(audited, default="")
    lacking = snapshot.index is not None and bool(snapshot.unopened or not snapshot.headers)
    opened = frozenset(file.name for file in snapshot.pickles)
    yield from other_weights_by_kind(
        set(other_weight_files(snapshot)).difference(*files_by_split.values()),
        folder_of(first),
        lacking=lacking,
        opened=opened,
    )


def _incomplete_copies(snapshot: Snapshot) -> dict[Split, set[str]]:
    """Return the existing shards of incomplete safetensors copies of the audited torch files.

    They are grouped by split. A folder of the Hugging Face cache is skipped, because it may contain
    only some files of a complete copy.
    """
    first = min((file.name for file in snapshot.headers), default="")
    if not first.endswith(".bin") or (snapshot.partial and snapshot.commit is not None):
        return {}
    folder = folder_of(first)
    files_by_split: dict[Split, set[str]] = {}
    for name in other_weight_files(snapshot):
        if re.fullmatch(_SHARDS, name.removeprefix(folder)) and (split := split_of(name)):
            files_by_split.setdefault(split, set()).add(name)
    return {split: files for split, files in files_by_split.items() if split.absent(files)}


def _incomplete(split: Split, files: Sequence[str]) -> OfFile:
    absent = listed(split.absent(files))
    reason = (
        f"{len(files):,} of the {split.total:,} files of a safetensors copy are here, without "
        f"{absent}: transformers loads the torch files, and loaders that take every safetensors "
        "file, as vLLM does, load a part of the model"
    )
    return CopyDiffers(file=files[0], reason=reason)


def other_weights_by_kind(
    names: Iterable[str],
    inside: str = "",
    *,
    lacking: bool = False,
    opened: Collection[str] = (),
) -> Iterator[OfFiles]:
    """Yield a finding for each kind of weight files that are not audited.

    `inside` is the folder of the audited set, such as "unet/". If files of that set are `lacking`,
    no other file is described as a second copy. The `opened` files were checked as pickles.
    """
    kinds: dict[str, list[str]] = {}
    for name in names:
        what = _kind(name.removeprefix(inside), lacking=lacking)
        unaudited = lacking or name in opened
        kind = f"{what}; it {'is not part of the audited set' if unaudited else 'was not opened'}"
        kinds.setdefault(kind, []).append(name)
    for reason, files in sorted(kinds.items()):
        yield OtherWeights(files=tuple(sorted(files)), reason=reason)


def _kind(name: str, *, lacking: bool) -> str:
    """Return a description of a weight file, by its name relative to the audited set's folder."""
    last = PurePosixPath(name).name.lower()
    variant = variant_of(last)
    formats = (row.name for row, _ in formats_by_name([last]))
    framework = "llama.cpp" if last.endswith(".gguf") else next(formats, None)
    kinds = (
        (variant and "/" not in name, f"a variant of the weights (--variant {variant})"),
        (last.startswith("consolidated.") or name.startswith("original/"), _ORIGINAL),
        (framework, f"weights for another framework, {framework}"),
        (last.startswith("adapter_model."), "an adapter, which needs the model it was made of"),
        (
            re.fullmatch(_DEFAULT, last) and "/" not in name and not lacking,
            "what is loaded by default",
        ),
        ("/" in name, "a model in a folder of its own"),
        (lacking and last.endswith(".index.json"), _INDEX),
        (lacking, "a weight file that the index does not name"),
        (re.fullmatch(_TORCH, last), "by its name the same weights once more, as a torch file"),
        (re.fullmatch(_SHARDS, last), "by its name the same weights once more, in shards"),
        (re.fullmatch(_OWN_INDEX, last), "by its name an index of the same weights"),
        (last.endswith(".index.json"), _INDEX),
        (True, "a weight file that is not part of the audited set"),
    )
    return next(kind for holds, kind in kinds if holds)


def embedded_adapter(snapshot: Snapshot) -> Iterator[OfFile | OfFolders]:
    """Yield a finding if an adapter's config is in a model's folder, with or without its weights.

    transformers looks for the adapter's config first if PEFT is installed.
    """
    if snapshot.config is None or snapshot.config.name.endswith(ADAPTER_CONFIG):
        return
    names = {file.name for file in snapshot.files}
    folder = folder_of(snapshot.config.name)
    config = f"{folder}{ADAPTER_CONFIG}"
    if config not in names:
        return
    weights = next((f"{folder}{name}" for name in ADAPTERS if f"{folder}{name}" in names), None)
    if weights is not None:
        reason = (
            f"{named(weights)} is in the folder of the model: with PEFT installed, from_pretrained "
            "attaches it to these weights, or to the base that it names if the model is loaded "
            "from the Hub. Headers do not show whether it is merged into these weights; if it is, "
            f"it is applied twice: delete or move {config} and {weights}"
        )
        yield AdapterBeside(file=config, reason=reason)
        return
    if snapshot.partial and snapshot.commit is not None:
        return  # the Hugging Face cache is filled file by file
    reason = (
        f"{named(config)} declares an adapter beside the model, and its weights are not there: "
        "where PEFT is installed, from_pretrained looks for them and fails; upload them, or "
        f"remove {ADAPTER_CONFIG}"
    )
    yield MissingComponent(declared_in=config, folders=(f"{folder}{ADAPTERS[0]}",), reason=reason)


def torch_copy_findings(snapshot: Snapshot, contents: Contents) -> Iterator[Finding]:
    """Yield the faults of the torch copies, and their differences from the audited files.

    A tensor that only a copy has is not a difference if it shares its bytes with a tensor that both
    have, because safetensors stores those once, or if it contains no parameter. Git LFS pointers in
    a copy of the repository are torch files that nobody fetched, which is not a fault of the model.
    """
    unfetched = [file.name for file in snapshot.torch_copies if file.pointed is not None]
    if unfetched and snapshot.partial:
        reason = "by its name the same weights once more, as a Git LFS pointer that was not fetched"
        yield OtherWeights(files=tuple(unfetched), reason=f"{reason}; it is not compared")
        return
    if not snapshot.torch_copies:
        return
    tables = [file.parsed for file in snapshot.torch_copies if isinstance(file.parsed, Table)]
    for table in tables:
        yield from table_findings(table)
    first = snapshot.torch_copies[0].name
    broken = [file for file in snapshot.torch_copies if isinstance(file.parsed, CheckpointError)]
    unsafe = [finding for file in broken if (finding := unsafe_finding(file))]
    yield from unsafe
    if len(broken) > len(unsafe):
        fault = next(file.parsed for file in broken if unsafe_finding(file) is None)
        yield CopyDiffers(file=first, reason=f"{fault}; it is not compared with the audited set")
    elif not (broken or contents.unread or contents.names_only):
        yield from _differences(first, contents, tables)


def unsafe_pickles(snapshot: Snapshot) -> Iterator[OfImports]:
    """Yield a finding for each local pickle outside the audited set that may run code."""
    for file in snapshot.pickles:
        if finding := unsafe_finding(file):
            yield finding


def format_findings(snapshot: Snapshot) -> Iterator[OfFile | OfFolders]:
    """Yield the faults of files in other formats, of which none is a copy of audited weights."""
    for fault in format_faults(snapshot):
        if fault.lost:
            yield MissingComponent(declared_in=fault.file, folders=fault.lost, reason=fault.reason)
        else:
            kind = BadSize if fault.is_size else BadHeader
            yield kind(file=fault.file, reason=fault.reason)


def unread_pickles(snapshot: Snapshot) -> Iterator[str]:
    """Yield a line for the torch copies that were not read, and one for other unread pickles."""
    copies = _unread_torch_copies(snapshot)
    if copies:
        how = "neither compared with the audited files nor followed (--torch-copies does both)"
        yield f"{listed(copies)}: {how}"
    read_files = (*snapshot.headers, *snapshot.torch_copies, *snapshot.pickles)
    accounted = {*(file.name for file in read_files), *copies, *snapshot.unopened}
    names = (file.name for file in snapshot.files)
    unread = snapshot.unexamined
    if unread is None:
        unread = tuple(name for name in names if name not in accounted and may_have_code(name))
    if unread:
        yield f"{listed(unread)}: not read, and a pickle may run code when it is loaded"
    doubts = [head for head in snapshot.pickles if isinstance(head.parsed, UnfollowedError)]
    if doubts:
        doubtful = listed([head.name for head in doubts])
        yield f"{doubtful}: may contain code, and not followed to the end: {doubts[0].parsed}"


def answer_notes(snapshot: Snapshot) -> Iterator[str]:
    """Yield a note for each file that has a pickle's name and the text of a server's answer."""
    for file in snapshot.pickles:
        if isinstance(file.parsed, CheckpointError) and ANSWER in str(file.parsed):
            yield str(file.parsed)


def uncompared_torch_copies(snapshot: Snapshot, contents: Contents) -> tuple[str, ...]:
    """Return the torch copies that are not compared because some audited files were not read."""
    lacking = contents.unread or contents.names_only
    return tuple(file.name for file in snapshot.torch_copies) if lacking else ()


def _unread_torch_copies(snapshot: Snapshot) -> tuple[str, ...]:
    """Return the torch files that hold a copy of the audited safetensors and were not read."""
    name = next((file.name for file in snapshot.headers), "")
    if not name.endswith(".safetensors") or variant_of(name):
        return ()
    read = {file.name for file in snapshot.torch_copies}
    folder = folder_of(name)
    files = (file.name for file in snapshot.files)
    inside = torch_model_files(one.removeprefix(folder) for one in files if one.startswith(folder))
    return tuple(path for name in inside if (path := f"{folder}{name}") not in read)


def _differences(first: str, contents: Contents, tables: list[Table]) -> Iterator[Finding]:
    audited = {tensor.name: tensor for tensor in contents.tensors}
    other = {tensor.name: tensor for table in tables for tensor in table.tensors}
    shared = {name: source for table in tables for name, source in table.shared.items()}
    copies = {name for pair in shared.items() if audited.keys() & set(pair) for name in pair}
    copies |= {name for name, source in shared.items() if source in copies}
    lacks = [name for name in audited if name not in other]
    more = [
        name for name, one in other.items() if name not in audited.keys() | copies and learned(one)
    ]
    both = [name for name in other if name in audited]
    reshaped = [name for name in both if audited[name].shape != other[name].shape]
    for names, how in (
        (lacks, "lacks {} that the audited files have: {}"),
        (more, "has {} that the audited files lack: {}"),
        (reshaped, "has {} in another shape than the audited files: {}"),
    ):
        names.sort(key=natural_key)
        if names:
            count = f"{len(names):,} tensor{'s' if len(names) > 1 else ''}"
            reason = f"{named(first)} {how.format(count, listed(names))}"
            yield CopyDiffers(file=first, reason=reason, tensors=tuple(names))
