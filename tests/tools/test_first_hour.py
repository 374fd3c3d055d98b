"""What a new user types in the first hour ends as it should, with one line where it is refused.

`make first-hour` does the same after each of the README's install lines, in an empty home.
"""

import os
import re
from pathlib import Path

from first_hour import IN_SENTENCES, INSTALL, README, SLIPS, walk
from support.running import AUDIT


def test_every_command_and_every_slip_of_the_first_hour_ends_as_it_should(tmp_path):
    """The blocks of the README are held to what the commands print elsewhere."""
    path = f"{Path(AUDIT).parent}:{os.environ['PATH']}"
    faults = {step.typed: fault for step, fault in walk(tmp_path / "w", path, whole=False)}
    assert {typed: fault for typed, fault in faults.items() if fault} == {}
    assert len(faults) > 20


def test_the_walk_has_every_command_that_the_readme_names():
    named = {*re.findall(r"[`$] ?audit ([a-z][a-z-]+)\b", README)} - {"bert-base-chinese"}
    typed = " ".join(step.typed for step in (*IN_SENTENCES, *SLIPS))
    shown = {"claim"}  # in a block, whose output test_documents.py holds
    assert {one for one in named if f"audit {one}" not in typed} <= shown
    assert len(INSTALL) == 3
