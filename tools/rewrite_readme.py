"""Rewrite what the README shows of commands: `python tools/rewrite_readme.py`.

test_readme.py holds the README to the same commands.
"""

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

README = Path(__file__).resolve().parent.parent / "README.md"
AUDIT = Path(sys.executable).parent / "audit"


def printed(command: str) -> str:
    """What a command of the README prints into a pipe, eighty columns wide."""
    return subprocess.run(  # noqa: S603 - our own command
        [AUDIT, *shlex.split(command)[1:]],
        env={**os.environ, "COLUMNS": "80", "NO_COLOR": "1"},
        capture_output=True,
        text=True,
        check=True,
    ).stdout


def rewritten(text: str) -> str:
    """The README with every console block and the table of architectures as they are now."""
    text = re.sub(
        r"(```console\n\$ (audit [^\n]*)\n).*?```",
        lambda block: f"{block[1]}{printed(block[2])}```",
        text,
        flags=re.DOTALL,
    )
    table = printed("audit architectures --markdown")
    sums = re.findall(r"\d+ model types, \d+ classes", table)[0]
    text = re.sub(r"(</summary>\n\n).*?(\n</details>)", rf"\g<1>{table}\2", text, flags=re.DOTALL)
    return re.sub(r"\d+ model types, \d+ classes: encoders", f"{sums}: encoders", text)


if __name__ == "__main__":
    README.write_text(rewritten(README.read_text()))
