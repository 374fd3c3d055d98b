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
    folders: Sequence[Path], home: Path, target: str | None = None
) -> Iterable[dict[str, Any]]:
    """The JSON of an audit, an object for each folder, in their order."""
    option = [target] if target else []
    for first in range(0, len(folders), MOST):
        some = folders[first : first + MOST]
        done = subprocess.run(  # noqa: S603 - our own command
            [*AUDIT, *option],
            input="".join(f"{folder}\n" for folder in some),
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
            raise RuntimeError(f"{len(outcomes)} answers to {len(some)} folders: {done.stderr}")
        yield from outcomes
