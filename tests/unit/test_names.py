"""A class has one name, and no other class has it."""

import re
from collections import defaultdict
from pathlib import Path

import auditor

PACKAGE = Path(auditor.__file__).parent
DEFINED = re.compile(r"^class ([^\W_]\w*)", re.MULTILINE)


def test_a_class_has_a_name_of_its_own():
    files_by_name = defaultdict(list)
    for path in sorted(PACKAGE.rglob("*.py")):
        for name in DEFINED.findall(path.read_text("utf-8")):
            files_by_name[name].append(path.relative_to(PACKAGE).as_posix())
    assert {name: files for name, files in files_by_name.items() if files[1:]} == {}
