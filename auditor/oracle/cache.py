"""Answers that took long, kept on disk: a bounded folder of JSON files, ignored where broken."""

import json
import os
from contextlib import suppress
from operator import itemgetter
from pathlib import Path
from typing import Any

from auditor.writing import write_atomically

# A BERT's answer is 15 KB, that of 92,000 tensors 7 MB.
MOST_BYTES_OF_ONE = 2**25
MOST_BYTES = 2**28
MOST_FILES = 4096


def cache_folder() -> Path:
    """Where answers are kept: in Hugging Face's own folder on this machine, HF_HOME."""
    from huggingface_hub import constants  # noqa: PLC0415 - 0.1 s, only where the oracle is asked

    return Path(constants.HF_HOME) / "hf-audit" / "oracle"


def read_answer(folder: Path, key: str) -> Any | None:
    """The answer of that key; None: it is not there, or not to be read."""
    path = folder / f"{key}.json"
    try:
        if path.stat().st_size > MOST_BYTES_OF_ONE:
            return None
        answer = json.loads(path.read_bytes())
    except (OSError, ValueError, RecursionError):
        return None
    with suppress(OSError):
        os.utime(path)  # what is asked for is kept
    return answer


def keep_answer(folder: Path, key: str, answer: Any) -> None:
    """Write an answer, and remove those not asked for the longest; a full disk is not an error."""
    content = json.dumps(answer, separators=(",", ":")).encode()
    if len(content) > MOST_BYTES_OF_ONE:
        return
    with suppress(OSError):
        write_atomically(folder / f"{key}.json", content)
        _make_room(folder)


def _make_room(folder: Path) -> None:
    found = []
    for path in folder.iterdir():
        with suppress(FileNotFoundError):  # another audit makes room as well
            status = path.stat()
            found.append((status.st_mtime_ns, status.st_size, path))
    total = 0
    for count, (_, size, path) in enumerate(sorted(found, key=itemgetter(0), reverse=True), 1):
        total += size
        if count > MOST_FILES or total > MOST_BYTES:
            path.unlink(missing_ok=True)
