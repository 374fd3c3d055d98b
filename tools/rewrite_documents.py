"""Rewrite what the README and docs/ show of commands, findings and formats, and the JSON schema.

`python tools/rewrite_documents.py`

test_documents.py and test_docs.py hold the documents to the same.
"""

import os
import re
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import groupby
from pathlib import Path

from api_reference import api_reference
from report_schema import schema_text

from auditor.containers.other_formats import OTHER_FORMATS
from auditor.findings import Severity
from auditor.formats import meanings
from auditor.formats.registry import FORMATS

ROOT = Path(__file__).resolve().parent.parent
DOCS = ROOT / "docs"
SCHEMA = ROOT / "auditor" / "formats" / "report.schema.json"
DOCUMENTS = (ROOT / "README.md", *sorted(DOCS.glob("*.md")))
AUDIT = Path(sys.executable).parent / "audit"
SHOWN = re.compile(r"(```console\n\$ (audit [^\n]*)\n)(.*?)```", re.DOTALL)
_ARCHITECTURES = re.compile(r"(</summary>\n\n).*?(\n</details>)", re.DOTALL)
_SUMS = re.compile(r"\d+ model types, \d+ classes(?=: encoders)")


def printed(command: str) -> str:
    """What a command prints in an empty folder where no Hub can be asked, eighty columns wide."""
    with tempfile.TemporaryDirectory() as folder:
        done = subprocess.run(  # noqa: S603 - our own command
            [AUDIT, *shlex.split(command)[1:]],
            cwd=folder,
            env={**os.environ, "COLUMNS": "80", "NO_COLOR": "1", "HF_HUB_OFFLINE": "1"},
            capture_output=True,
            text=True,
            check=False,
        )
    if done.returncode > 1:  # 1: what is shown says that something is wrong
        raise RuntimeError(f"{command}: {done.stderr}")
    return done.stdout


def table_of_kinds() -> str:
    """A table for each severity: kind, what it means, what to do."""
    return "\n".join(("", *_rows_of_kinds(), ""))


def _rows_of_kinds() -> Iterator[str]:
    for severity, kinds in groupby(meanings.kind_meanings(), lambda kind: kind.severity):
        if severity is not Severity.ERROR:
            yield ""
        yield from meaning_table([*kinds], str(severity))


def meaning_table(rows: Sequence[meanings.Meaning], heading: str) -> Iterator[str]:
    """Yield the lines of a Markdown table: name, meaning, advice."""
    yield f"| {heading} | what it means | what to do |"
    yield "|---|---|---|"
    for meaning in rows:
        yield f"| `{meaning.name}` | {meaning.summary} | {meaning.to_do} |"


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


def table_of_other_formats() -> str:
    """Each format that is recognised: by what, what is read, and what a user can do."""
    rows = [f"| {one.name} | {one.known_by} | {one.read} | {one.to_do} |" for one in OTHER_FORMATS]
    return "\n".join(
        (
            "",
            "| format | recognised by | what is read | what to do |",
            "|---|---|---|---|",
            *rows,
            "",
        )
    )


TABLES: Mapping[str, Callable[[], str]] = {
    "kinds": table_of_kinds,
    "causes": table_of_causes,
    "formats": table_of_formats,
    "other-formats": table_of_other_formats,
    "api": api_reference,
}


def marked(name: str) -> re.Pattern[str]:
    """The table of that name, between its markers."""
    return re.compile(rf"(<!-- {name} -->\n)(.*?)(\n<!-- end of {name} -->)", re.DOTALL)


def rewritten(text: str) -> str:
    """A document with its console blocks and its tables as they are now."""
    for name, table in TABLES.items():
        text = marked(name).sub(lambda block, made=table: f"{block[1]}{made()}{block[3]}", text)
    text = SHOWN.sub(lambda block: f"{block[1]}{printed(block[2])}```", text)
    if _ARCHITECTURES.search(text):
        table = printed("audit architectures --markdown")
        text = _ARCHITECTURES.sub(rf"\g<1>{table}\2", text)
        sums = re.findall(r"\d+ model types, \d+ classes", table)[0]
        text = _SUMS.sub(sums, text)
    return text


if __name__ == "__main__":
    SCHEMA.write_text(schema_text())
    for document in DOCUMENTS:
        document.write_text(rewritten(document.read_text()))
