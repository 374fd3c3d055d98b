"""The verdict of one engine, as a report has it."""

from collections.abc import Mapping
from typing import Any

from msgspec import Struct


class EngineVerdict(Struct, frozen=True, kw_only=True):
    """The verdict of one engine on a checkpoint."""

    engine: str
    version: str
    date: str  # of the recording
    loads: bool | None  # None: unknown
    reasons: tuple[str, ...] = ()  # why not, or what it reads otherwise
    additions: Mapping[str, Any] = {}  # config keys that would help the engine, with their values
    scheme: str | None = None  # of quantized weights; None without quantization
    applied: int | None = None  # modules of an adapter that it applies; None for a model
    of: int | None = None  # modules with tensors in the adapter's file
