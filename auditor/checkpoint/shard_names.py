"""The numbers in shard names: `model-00002-of-00005.safetensors` is shard 2 of 5. No I/O.

GGUF files are grouped into models, and a tag selects one of them.
"""

import re
from collections.abc import Collection, Iterable
from typing import NamedTuple

from auditor.errors import Reason, SourceError
from auditor.messages import listed, quoted
from auditor.names.parts import file_name

_SHARD = re.compile(r"(.+?[-_])(\d{1,6})-of-(\d{1,6})((?:\.\w+)+)", re.ASCII)
_WITHOUT_TOTAL = re.compile(r"(.*?\D)(\d{1,6})((?:\.\w+)+)", re.ASCII)
_MOST_SHARDS = 10_000  # most shards of one save, the same limit as for an index


class Split(NamedTuple):
    """The parts that all shard names of one save have in common."""

    stem: str
    total: int
    ending: str
    digits: int  # digits in a shard's number
    of: str  # the total as written, with its zeros

    def absent(self, names: Collection[str]) -> tuple[str, ...]:
        """Return the names of the shards of this save that are not among the names."""
        files = map(self.named, range(1, self.total + 1))
        return tuple(file for file in files if file not in names)

    def named(self, number: int) -> str:
        return f"{self.stem}{number:0{self.digits}}-of-{self.of}{self.ending}"


def split_of(file: str) -> Split | None:
    """Return the Split to which the shard belongs; None if its name has no total."""
    match = _SHARD.fullmatch(file)
    if match is None or not 0 < int(match[3]) <= _MOST_SHARDS:
        return None
    return Split(match[1], int(match[3]), match[4], len(match[2]), match[3])


def gaps(files: Iterable[str]) -> tuple[str, ...]:
    """Return the missing names in a series of numbers without a total: `model-2.safetensors`.

    Return () if the names differ in more than a number. The series begins with 0 if that number
    exists, else with 1.
    """
    matches = [_WITHOUT_TOTAL.fullmatch(file) for file in files]
    places = {(match[1], match[3]) if match else None for match in matches}
    texts = [match[2] for match in matches if match]
    if len(places) != 1 or not texts or max(map(int, texts)) > _MOST_SHARDS:
        return ()
    [(stem, ending)] = {place for place in places if place}
    numbers, digits = set(map(int, texts)), min(map(len, texts))
    absent = set(range(min(1, *numbers), max(numbers))) - numbers
    return tuple(f"{stem}{number:0{digits}}{ending}" for number in sorted(absent))


# --- GGUF files: grouping into models, and selection of a model by tag ---------------------------

GGUF_ENDING = ".gguf"

# Files that belong to a model: its vision tower, and the importance matrix of its quantization.
_NO_MODELS = ("mmproj", "imatrix")

Files = tuple[str, ...]  # one file, or the shards of one model, sorted


def gguf_sets(names: Iterable[str]) -> tuple[Files, ...]:
    """Return the GGUF models among the names, each as its sorted files."""
    files_by_set: dict[tuple[str, str], list[str]] = {}
    for name in names:
        last = file_name(name).lower()
        if last.endswith(GGUF_ENDING) and not any(word in last for word in _NO_MODELS):
            split = split_of(name)
            key = (split.stem, split.of) if split else (name, "")
            files_by_set.setdefault(key, []).append(name)
    return tuple(sorted(tuple(sorted(files)) for files in files_by_set.values()))


def only_gguf_set(names: Iterable[str], where: str) -> Files:
    """Return the only GGUF model among the names, else (); raise SourceError for several."""
    sets = gguf_sets(names)
    if len(sets) > 1:
        raise _unclear(f"{where} holds {len(sets)} GGUF models", sets)
    return sets[0] if sets else ()


def tagged_gguf_set(names: Iterable[str], where: str, tag: str) -> Files:
    """Return the only GGUF model that a tag matches: a file name, or a word in it (Q4_K_M)."""
    sets = gguf_sets(names)
    if not sets:
        detail = f"{where} has no GGUF model, expected {quoted(tag)}"
        raise SourceError(Reason.NO_WEIGHTS, detail)
    part = re.compile(rf"(?<![a-z0-9]){re.escape(tag)}(?![a-z0-9_])", re.IGNORECASE)
    matches = [files for files in sets if tag in files] or [
        files for files in sets if part.search(files[0])
    ]
    if len(matches) != 1:
        some = f"{len(matches)} of the {len(sets)} GGUF models of {where} are"
        count = some if matches else f"no GGUF model of {where} is"
        raise _unclear(f"{count} {quoted(tag)}", matches or sets)
    return matches[0]


def shards_of(name: str, names: Iterable[str]) -> Files:
    """Return all shards of the model to which the file `name` belongs."""
    return next(files for files in gguf_sets({name, *names}) if name in files)


def _unclear(subject: str, sets: Iterable[Files]) -> SourceError:
    files = listed([files[0] for files in sets])
    detail = f"{subject}, {files}: name one, as in namespace/name:Q4_K_M"
    return SourceError(Reason.NO_SAFETENSORS, detail)
