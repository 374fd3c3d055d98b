"""The verdict of one engine, as a report has it."""

from collections.abc import Mapping
from typing import Any, Literal

from msgspec import Struct


class EngineVerdict(Struct, frozen=True, kw_only=True):
    """The verdict of one engine on a checkpoint."""

    engine: str
    version: str
    date: str  # of the recording
    loads: bool | None  # None: unknown
    # Of a release of transformers: whether it computes what the checkpoint's writer did.
    verdict: Literal["right", "wrong-silently", "warns", "refuses", "unknown"] | None = None
    reasons: tuple[str, ...] = ()  # why not, or what it reads otherwise
    additions: Mapping[str, Any] = {}  # config keys that would help the engine, with their values
    scheme: str | None = None  # of quantized weights; None without quantization
    applied: int | None = None  # modules of an adapter that it applies; None for a model
    of: int | None = None  # modules with tensors in the adapter's file

    @property
    def name(self) -> str:
        """The engine or the library, without its version."""
        return self.engine.removesuffix(f" {self.version}")

    @property
    def label(self) -> str:
        """The engine or the library with its version."""
        return f"{self.name} {self.version}"
