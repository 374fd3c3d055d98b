"""Runs the programs of tools/ as `make` does: they import what is in tools/ and in tests/."""

import os
from collections.abc import Mapping
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
TESTS = ROOT / "tests"
TOOLS = ROOT / "tools"


def environment(**variables: str) -> Mapping[str, str]:
    """This process's own, in which Python also finds the modules of tools/ and tests/."""
    places = [str(TOOLS), str(TESTS), os.environ.get("PYTHONPATH", "")]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, places)), **variables}
