"""Checkpoints on disk that are headers alone, and audits of many of them."""

import json
import os
import subprocess
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from support.builders import safetensors_bytes

from parity_cases.loads import Load

AUDIT = (sys.executable, "-m", "parity_cases.audits")
MOST = 200  # folders of one process, which never looks for garbage


def write(load: Load, folder: Path) -> Path:
    """config.json and a safetensors file whose data is a hole: zeros that take no disk."""
    folder.mkdir()
    config = load.values | {"architectures": [load.saved]}
    (folder / "config.json").write_text(json.dumps(config))
    header = safetensors_bytes(
        {name: ("F32", shape) for name, shape in load.stored.items()},
        metadata={"format": "pt"},
        data=False,
    )
    with (folder / "model.safetensors").open("wb") as file:
        file.write(header)
        file.truncate(len(header) + 4 * load.elements)
    return folder


def audited(
    asked: Sequence[tuple[Path, str | None]], home: Path, kind: str = ""
) -> Iterable[dict[str, Any]]:
    """The JSON of audits of folders, for the declared class (None) or another."""
    for first in range(0, len(asked), MOST):
        some = asked[first : first + MOST]
        done = subprocess.run(  # noqa: S603 - our own command
            [*AUDIT, kind],
            input="".join(f"{json.dumps([str(folder), target])}\n" for folder, target in some),
            env={
                **os.environ,
                "HF_HOME": str(home),
                "HF_HUB_OFFLINE": "1",
                "PYTHONPATH": os.pathsep.join(filter(None, sys.path)),
            },
            capture_output=True,
            text=True,
            check=False,
        )
        outcomes = [json.loads(line) for line in done.stdout.splitlines()]
        if len(outcomes) != len(some):
            raise RuntimeError(f"{len(outcomes)} answers to {len(some)} questions: {done.stderr}")
        yield from outcomes
