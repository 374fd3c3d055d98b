"""Rewrite what the README shows of commands, findings and causes: `python tools/rewrite_readme.py`.

test_readme.py holds the README to the same commands and to the same classes.
"""

import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from itertools import groupby
from pathlib import Path

from auditor.formats import meanings
from auditor.formats.explained_finding import meaning_table
from auditor.formats.registry import FORMATS
from auditor.reconciler.findings import Severity

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


KINDS = re.compile(r"(<!-- kinds -->\n).*?(<!-- end of kinds -->)", re.DOTALL)
SHOWN_FORMATS = re.compile(r"(<!-- formats -->\n).*?(<!-- end of formats -->)", re.DOTALL)
CAUSES = re.compile(r"(<!-- causes -->\n).*?(<!-- end of causes -->)", re.DOTALL)


def table_of_kinds() -> str:
    """A table for each severity: kind, what it means, what to do."""
    return "\n".join(("", *_rows_of_kinds(), ""))


def _rows_of_kinds() -> Iterator[str]:
    for severity, kinds in groupby(meanings.kind_meanings(), lambda kind: kind.severity):
        if severity is not Severity.ERROR:
            yield ""
        yield from meaning_table([*kinds], str(severity))


def table_of_causes() -> str:
    """Cause, what it means, what to do."""
    return "\n".join(("", *meaning_table(meanings.cause_meanings(), "cause"), ""))


def table_of_formats() -> str:
    """What --format takes, and how the name of the file ends that -o names."""
    rows = []
    for name, form in FORMATS.items():
        endings = ", ".join(f"`{ending}`" for ending in form.endings)
        rows.append(f"| `{name}` | {form.meaning} | {endings or 'a folder'} |")
    return "\n".join(("", "| `--format` | what it is | `-o` |", "|---|---|---|", *rows, ""))


def rewritten(text: str) -> str:
    """The README with its console blocks and its tables as they are now."""
    text = SHOWN_FORMATS.sub(lambda block: f"{block[1]}{table_of_formats()}\n{block[2]}", text)
    text = CAUSES.sub(lambda block: f"{block[1]}{table_of_causes()}\n{block[2]}", text)
    text = KINDS.sub(lambda block: f"{block[1]}{table_of_kinds()}\n{block[2]}", text)
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
