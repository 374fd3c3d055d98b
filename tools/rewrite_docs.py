"""Writes into docs/ what its commands print: `python tools/rewrite_docs.py`.

test_docs.py holds the documents to the same commands.
"""

import os
import re
import shlex
import subprocess
import sys
import tempfile
from pathlib import Path

DOCS = Path(__file__).resolve().parent.parent / "docs"
AUDIT = Path(sys.executable).parent / "audit"
SHOWN = re.compile(r"(```console\n\$ (audit [^\n]*)\n)(.*?)```", re.DOTALL)


def printed(command: str) -> str:
    """What a command prints in an empty folder, where no Hub can be asked."""
    with tempfile.TemporaryDirectory() as folder:
        return subprocess.run(  # noqa: S603 - our own command
            [AUDIT, *shlex.split(command)[1:]],
            cwd=folder,
            env={**os.environ, "COLUMNS": "80", "NO_COLOR": "1", "HF_HUB_OFFLINE": "1"},
            capture_output=True,
            text=True,
            check=True,
        ).stdout


def rewritten(text: str) -> str:
    """A document with every console block as it is now."""
    return SHOWN.sub(lambda block: f"{block[1]}{printed(block[2])}```", text)


if __name__ == "__main__":
    for document in sorted(DOCS.glob("*.md")):
        document.write_text(rewritten(document.read_text()))
