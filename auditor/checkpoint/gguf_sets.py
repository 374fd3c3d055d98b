"""GGUF files of a listing: grouped into models, and the model that a tag names. Pure.

A repository of GGUF files usually has one model in a dozen quantizations, each a file or a set of
shards. llama.cpp takes `namespace/name:Q4_K_M`, and a default of its own without a tag. Here the
only model is taken; if there are several, the user has to name one.
"""

import re
from collections.abc import Iterable

from auditor.errors import Reason, SourceError
from auditor.messages import listed, quoted

ENDING = ".gguf"

_SHARD = re.compile(r"(.*)-\d{5}-of-(\d{5})\.gguf", re.ASCII | re.IGNORECASE | re.DOTALL)
# Files that belong to a model: its vision tower, and the importance matrix of its quantization.
_NO_MODELS = ("mmproj", "imatrix")

Files = tuple[str, ...]  # one file, or the shards of one model, sorted


def gguf_sets(names: Iterable[str]) -> tuple[Files, ...]:
    """The models among the names, sorted."""
    found: dict[tuple[str, str], list[str]] = {}
    for name in names:
        last = name.rpartition("/")[2].lower()
        if last.endswith(ENDING) and not any(word in last for word in _NO_MODELS):
            shard = _SHARD.fullmatch(name)
            found.setdefault((shard[1], shard[2]) if shard else (name, ""), []).append(name)
    return tuple(sorted(tuple(sorted(files)) for files in found.values()))


def only_gguf_set(names: Iterable[str], where: str) -> Files:
    """Return the only model among the names, () without one; raise SourceError for several."""
    sets = gguf_sets(names)
    if len(sets) > 1:
        raise _unclear(f"{where} holds {len(sets)} GGUF models", sets)
    return sets[0] if sets else ()


def tagged_gguf_set(names: Iterable[str], where: str, tag: str) -> Files:
    """The model that a tag names: a file name, or a part of just one, such as Q4_K_M."""
    sets = gguf_sets(names)
    if not sets:
        detail = f"{where} holds no GGUF model, so none is {quoted(tag)}"
        raise SourceError(Reason.NO_WEIGHTS, detail)
    part = re.compile(rf"(?<![a-z0-9]){re.escape(tag)}(?![a-z0-9_])", re.IGNORECASE)
    meant = [files for files in sets if tag in files] or [
        files for files in sets if part.search(files[0])
    ]
    if len(meant) != 1:
        some = f"{len(meant)} of the {len(sets)} GGUF models of {where} are"
        count = some if meant else f"no GGUF model of {where} is"
        raise _unclear(f"{count} {quoted(tag)}", meant or sets)
    return meant[0]


def shards_of(name: str, names: Iterable[str]) -> Files:
    """The shards of the model to which a shard belongs, including this one."""
    return next(files for files in gguf_sets({name, *names}) if name in files)


def _unclear(what: str, sets: Iterable[Files]) -> SourceError:
    files = listed([files[0] for files in sets])
    detail = f"{what}, {files}: name one, as in namespace/name:Q4_K_M"
    return SourceError(Reason.NO_SAFETENSORS, detail)
