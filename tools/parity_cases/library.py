"""The load report of transformers itself."""

import logging
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
import transformers

from parity_cases.spoiling import Stored
from parity_cases.words import Raised, Word

# More elements than this are loaded on the meta device, where they take no memory.
MOST_IN_MEMORY = 2_000_000


def theirs(folder: Path, target: str, stored: Stored, elements: int) -> Word | Raised:
    """Of a real load of the folder's zeros; of a large one of tensors without values."""
    model_class = getattr(transformers, target)
    options = {"output_loading_info": True, "ignore_mismatched_sizes": True}
    with quiet():
        try:
            if elements <= MOST_IN_MEMORY:
                _, info = model_class.from_pretrained(folder, **options)
            else:
                _, info = model_class.from_pretrained(
                    None,
                    config=model_class.config_class.from_pretrained(folder),
                    state_dict={
                        name: torch.empty(shape, device="meta") for name, shape in stored.items()
                    },
                    device_map={"": "meta"},
                    **options,
                )
        except Exception as error:  # noqa: BLE001 - the library's own word on this checkpoint
            return Raised(f"{type(error).__name__}: {' '.join(str(error).split())[:120]}")
    return Word(
        frozenset(info["missing_keys"]),
        frozenset(info["unexpected_keys"]),
        frozenset((key, (tuple(a), tuple(b))) for key, a, b in info["mismatched_keys"]),
    )


def config_from(model_class: Any, values: dict[str, Any]) -> Any:
    """The class's own part of a config, as loading takes it."""
    from auditor.oracle.build import own_config  # noqa: PLC0415 - as the oracle does

    return model_class.config_class.from_dict(own_config(model_class.config_class, dict(values)))


@contextmanager
def quiet() -> Iterator[None]:
    transformers.logging.set_verbosity(logging.CRITICAL)
    transformers.logging.disable_progress_bar()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield
