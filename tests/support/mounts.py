"""File systems of a test's own: of few bytes, or read-only. They need root, as in containers."""

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest


def _run(*command: str) -> bool:
    return subprocess.run(command, check=False, capture_output=True).returncode == 0  # noqa: S603 - ours


def remount(place: Path, options: str) -> None:
    assert _run("mount", "-o", f"remount,{options}", str(place))


@contextmanager
def mounted(place: Path, size: str) -> Iterator[Path]:
    """A file system in memory of that size; skips the test where it may not be mounted."""
    place.mkdir()
    if os.geteuid() or not _run("mount", "-t", "tmpfs", "-o", f"size={size}", "none", str(place)):
        pytest.skip("nothing can be mounted here")
    try:
        yield place
    finally:
        _run("umount", "-l", str(place))
