"""One name, one thing: what a stranger finds under a name is what it stands for everywhere."""

import re
from collections import defaultdict
from functools import cache
from pathlib import Path

import auditor

PACKAGE = Path(auditor.__file__).parent
# One role behind one protocol, which says so.
ROLES = {
    "files": "formats/registry.py",  # of each format
    "parse": "containers/weight_formats.py",  # of each container
    "read": "downloader/__init__.py",  # of each source
    "recognises": "layouts/packing.py",  # these three of each layout
    "unpack": "layouts/packing.py",
    "unread": "layouts/packing.py",
    "undoings": "diagnosis/engine.py",  # of each cause
    "writes": "layouts/packing.py",
}
RENDER = "render"  # what each format for people calls its text
MAIN = "main"
DEFINED = re.compile(r"^(class|def) ([^\W_]\w*)", re.MULTILINE)


@cache
def defined_names() -> list[tuple[str, str, str]]:
    """File, `class` or `def`, and public name of whatever a file defines at its top."""
    return [
        (path.relative_to(PACKAGE).as_posix(), *found)
        for path in sorted(PACKAGE.rglob("*.py"))
        for found in DEFINED.findall(path.read_text("utf-8"))
    ]


def definitions(kind: str, *, families: bool) -> dict[str, list[str]]:
    """Public name -> the files that define it at their top; a command is named after itself."""
    found: dict[str, list[str]] = defaultdict(list)
    for file, keyword, name in defined_names():
        left_out = file.startswith("cli/") or ("families/" in file and not families)
        if keyword == kind and not left_out:
            found[name].append(file)
    return found


def test_a_class_has_a_name_of_its_own():
    twice = {n: files for n, files in definitions("class", families=True).items() if files[1:]}
    assert twice == {}


def test_a_function_has_a_name_of_its_own_or_a_role():
    found = definitions("def", families=False)
    twice = {name: files for name, files in found.items() if files[1:]}
    assert twice.keys() <= {*ROLES, RENDER, MAIN}, twice


def test_the_protocol_of_a_role_names_it():
    for role, protocol in ROLES.items():
        assert f"{role}" in (PACKAGE / protocol).read_text("utf-8"), (role, protocol)
