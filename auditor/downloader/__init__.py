"""Read the config, index and headers of a checkpoint, from the Hub or this machine.

Each source is a module with a function `read`, which returns the Snapshot of a model or raises
SourceError: hub, local_folder (and the Hugging Face cache), bundled. `fetching.fetch` chooses one.
"""

from collections.abc import Iterator
from contextlib import contextmanager

from auditor.errors import UsageError


@contextmanager
def reading_variables() -> Iterator[None]:
    """Raise UsageError if huggingface_hub, imported in the block, rejects a variable."""
    try:
        yield
    except ValueError as error:
        detail = "huggingface_hub cannot read HF_ENDPOINT or another HF_ variable of this machine"
        raise UsageError(f"{detail}: {error}") from None
