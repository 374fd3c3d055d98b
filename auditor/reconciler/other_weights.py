"""Weights that are no part of the audited set, by kind: variants, other frameworks, older formats.

All of it follows from names alone: such a file is not opened, and counts for nothing.
"""

import re
from collections.abc import Iterable, Iterator
from pathlib import PurePosixPath

from auditor.checkpoint.filenames import variant_of
from auditor.checkpoint.selecting import other_weight_files
from auditor.checkpoint.snapshot import Snapshot
from auditor.reconciler.findings import OtherWeights

# Endings in lower case -> whose format it is.
_FRAMEWORKS = (
    (".h5", "TensorFlow"),
    (".msgpack", "Flax"),
    (".onnx", "ONNX"),
    (".ot", "rust-bert"),
    (".npz", "NumPy or MLX"),
    (".gguf", "llama.cpp"),
)
# Not audited only where something else was asked for.
_DEFAULT = r"(?:diffusion_pytorch_)?model\.safetensors"
_TORCH = r"(?:diffusion_)?pytorch_model(?:-[0-9]{5}-of-[0-9]{5})?\.bin(?:\.index\.json)?"
_SHARDS = (
    r"(?:diffusion_pytorch_)?model"
    r"(?:-[0-9]{5}-of-[0-9]{5}\.safetensors|\.safetensors\.index\.json)"
)
_INDEX = "an index of other weights than the audited ones"
_ORIGINAL = "the original format, of which the audited files were made"


def other_weights(snapshot: Snapshot) -> Iterator[OtherWeights]:
    """One finding for each kind of what is not part of the audited set."""
    audited = [head.name for head in snapshot.headers]
    audited += [snapshot.index.name] if snapshot.index else []
    first = min(audited, default="")
    lacking = snapshot.index is not None and bool(snapshot.unopened or not snapshot.headers)
    return other_weights_by_kind(
        other_weight_files(snapshot), first[: first.rfind("/") + 1], lacking=lacking
    )


def other_weights_by_kind(
    names: Iterable[str], inside: str = "", *, lacking: bool = False
) -> Iterator[OtherWeights]:
    """The same of any weight files; `inside` is the folder of the audited set, "unet/".

    Where that set is `lacking` some of its files, nothing else is the same once more.
    """
    kinds: dict[str, list[str]] = {}
    for name in names:
        kind = _kind(name.removeprefix(inside), lacking=lacking)
        kinds.setdefault(kind, []).append(name)
    for reason, files in sorted(kinds.items()):
        yield OtherWeights(files=tuple(sorted(files)), reason=reason)


def _kind(name: str, *, lacking: bool) -> str:
    """What a file is, judged by its name, seen from the folder of the audited set."""
    last = PurePosixPath(name).name.lower()
    variant = variant_of(last)
    framework = next((one for ending, one in _FRAMEWORKS if last.endswith(ending)), None)
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
        (last.endswith(".index.json"), _INDEX),
        (True, "a weight file that is not part of the audited set"),
    )
    how = "it is not part of the audited set" if lacking else "it was not opened"
    return next(f"{kind}; {how}" for holds, kind in kinds if holds)
