"""A pytest plugin that keeps each pickle which a test suite makes: `pytest -p keep_pickles`.

`KEEP_PICKLES` names the folder. Pickles that a test writes to a file are found there anyway.
"""

import os
import pickle
from collections.abc import Callable
from functools import wraps
from hashlib import sha256
from pathlib import Path


def pytest_configure() -> None:
    pickle.dumps = _keeping(pickle.dumps, Path(os.environ["KEEP_PICKLES"]))


def _keeping(dumps: Callable[..., bytes], folder: Path) -> Callable[..., bytes]:
    @wraps(dumps)
    def kept(*args: object, **options: object) -> bytes:
        content = dumps(*args, **options)
        (folder / f"{sha256(content).hexdigest()[:16]}.pkl").write_bytes(content)
        return content

    return kept
