"""A checkpoint as a release of transformers finds it, and what a release makes of it."""

from collections.abc import Mapping
from typing import Any, Literal, NamedTuple

from msgspec import Struct

Word = Literal["right", "wrong-silently", "warns", "refuses", "unknown"]

FIRST_FIVE = (5, 0, 0)


class ReadCheckpoint(Struct, frozen=True, kw_only=True):
    """A checkpoint as a release of transformers finds it."""

    config: Mapping[str, Any] = {}
    class_name: str | None = None
    model_type: str | None = None
    has_code: bool = False  # whether the repository brings its own classes
    stored: frozenset[str] = frozenset()
    missing: tuple[str, ...] = ()  # as the newest release lists them
    unexpected: tuple[str, ...] = ()
    mismatched: tuple[str, ...] = ()
    buffers: tuple[str, ...] = ()  # stored buffers that the model computes itself
    absent: tuple[str, ...] = ()  # stored names that the layout lacks: an expert's weight
    unread: str = ""  # why names or shapes are not all known; "" if they are
    packing: str = ""  # the quantization method
    # Whether save_pretrained wrote the files, which stores tied tensors once.
    is_saved: bool = False
    tokenizer: Mapping[str, Any] | None = None  # tokenizer_config.json
    processor: Mapping[str, Any] | None = None  # preprocessor_config.json
    is_companion: bool = False  # a tokenizer or processor without a model


class ReleaseReading(NamedTuple):
    """One thing that a release makes of the checkpoint."""

    word: Word
    reason: str
    additions: Mapping[str, Any] = {}
