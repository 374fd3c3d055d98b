"""The records of a comparison: what differs, and what reading the weights showed."""

import re
from typing import Any

from msgspec import Struct

from auditor.messages import quoted
from auditor.presented import Presented

_MOST_LOST = 3  # lost modules in one line
# Keys that the sentence about the differences names first: the model computes something else.
_WEIGHTY = re.compile(
    r"(^|\.|: )(rope_\w+|\w*eps|\w*epsilon|sliding_window|layer_types|eos_token\w*|hidden_act|"
    r"tie_word_embeddings|max_position_embeddings)$|^chat template"
)


class BytesCompared(Struct, frozen=True, kw_only=True):
    """The stored tensors that both checkpoints have, by the result of comparing their bytes."""

    equal: tuple[str, ...] = ()  # A's names of tensors with the same bytes
    other: tuple[str, ...] = ()  # A's names of tensors with other bytes
    # A's files that differ by their sha256, although which of their tensors differ is not known.
    other_files: tuple[str, ...] = ()
    # Whether the headers of all these files are equal, so that the numbers must differ.
    same_headers: bool = False
    unknown: int = 0  # tensors that were not compared
    why_unknown: str = ""


class NumbersCompared(Struct, frozen=True, kw_only=True):
    """The distance between the sampled numbers of a tensor in both checkpoints, unpacked."""

    name: str
    numbers: int  # how many numbers were sampled
    relative: float  # norm of the differences / norm of A's numbers
    largest: float  # largest absolute difference
    # The rank of the differences within the sample, as far as rounding of the stored dtype shows
    # it, and the largest rank that the sample could have; None: not measured.
    rank: int | None = None
    full_rank: int | None = None


class Lost(Struct, frozen=True, kw_only=True):
    """A module with tensors on one side and none on the other."""

    module: str
    what: str  # "a vision tower"; "" if the name is not known
    tensors: int
    parameters: int


class Changed(Struct, frozen=True, kw_only=True):
    """A tensor whose shape, dtype or file differs between the sides, with both values as text."""

    name: str
    before: str
    after: str


class ConfigChange(Struct, frozen=True, kw_only=True):
    """A config key with different values on the two sides."""

    key: str
    before: Any  # None: the config has no such key
    after: Any
    explains: int  # number of removed, added or reshaped tensors that follow from the two values

    @property
    def is_weighty(self) -> bool:
        """Whether the key changes what the model computes, or where generation stops."""
        return _WEIGHTY.search(self.key) is not None


class Comparison(Presented, Struct, frozen=True, kw_only=True):
    """The differences of two checkpoints."""

    models: tuple[str, str]
    layouts: tuple[str | None, str | None]
    renamed: tuple[str, str] | None = None  # the prefix of nearly all names, before and after
    lost: tuple[Lost, ...] = ()  # modules with tensors on the first side only
    gained: tuple[Lost, ...] = ()
    removed: tuple[str, ...] = ()
    added: tuple[str, ...] = ()
    reshaped: tuple[Changed, ...] = ()
    retyped: tuple[Changed, ...] = ()
    moved: tuple[Changed, ...] = ()
    keys: tuple[ConfigChange, ...] = ()
    modules: tuple[tuple[str, int, int], ...] = ()  # module, its parameters on each side
    tensors: tuple[int, int] = (0, 0)  # number of tensors on each side, as loaded
    stored: int = 0  # number of tensors in A's files: a packed weight is several
    files: tuple[int, int] = (1, 1)  # number of weight files
    types: tuple[str | None, str | None] = (None, None)  # model types
    bytes: BytesCompared = BytesCompared()
    numbers: tuple[NumbersCompared, ...] = ()  # with --values
    not_compared: tuple[str, ...] = ()
    summary: str = ""  # what the second is of the first, a sentence

    @property
    def same(self) -> bool:
        """Whether nothing is known to differ; `not_compared` says what is not known."""
        names = (self.removed, self.added, self.reshaped, self.retyped)
        others = (self.bytes.other, self.bytes.other_files, self.keys, self.renamed)
        return not (any(names) or any(others))

    def __repr__(self) -> str:
        """Return one line of counts, because the fields name every tensor that differs."""
        words = [quoted(model) for model in self.models]
        words += [f"lost {one.what or quoted(one.module)}" for one in self.lost[:_MOST_LOST]]
        changes = {
            "removed": self.removed,
            "added": self.added,
            "reshaped": self.reshaped,
            "re-typed": self.retyped,
            "with other bytes": self.bytes.other,
            "config keys": self.keys,
        }
        words += [f"{len(changed):,} {what}" for what, changed in changes.items() if changed]
        return f"Comparison({', '.join([*words, *(['the same'] if self.same else [])])})"
