"""Audits inside other programs: while transformers trains (`TrainerCallback`), and of its saves.

>>> trainer.add_callback(auditor.integrations.TrainerCallback(trainer))
>>> with auditor.integrations.audited_saves(model):
...     model.push_to_hub("org/name")

An error of the audit raises PublishError in place of the push, before any file is sent. The
messages go to the logger `auditor.integrations`.
"""

from auditor.errors import PublishError
from auditor.integrations.saves import audited_saves

__all__ = ["PublishError", "TrainerCallback", "audited_saves"]

TYPE_CHECKING = False
if TYPE_CHECKING:
    from auditor.integrations.training import TrainerCallback


def __getattr__(name: str) -> object:
    """Import the callback at its first use, because it needs transformers."""
    if name != "TrainerCallback":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from auditor.integrations.training import TrainerCallback  # noqa: PLC0415 - seconds

    return TrainerCallback
