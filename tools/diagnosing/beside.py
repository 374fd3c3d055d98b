"""Faults beside the weights of repositories that transformers writes."""

import tempfile
from pathlib import Path

from support.fault_bench import FAMILIES, Fault
from support.repository_bench import repository_faults, written_repository

from auditor.audit.options import Options
from auditor.audit.pipeline import examine
from diagnosing.names import judged
from diagnosing.tally import Tally


def main() -> None:
    table = Tally()
    with tempfile.TemporaryDirectory() as place:
        for name in FAMILIES:
            snapshot = written_repository(name, Path(place))
            sound = examine(snapshot, Options(requested=name))
            table.add_sound(is_alarmed=sound.verdict != "clean")
            if sound.verdict != "clean":
                print(f"{name}: {[one.reason for one in sound.findings]}")
            for fault in repository_faults(name, snapshot):
                report = examine(fault.snapshot, Options(requested=name))
                planted = Fault(name=fault.name, snapshot=fault.snapshot, cause=fault.cause)
                table.add(fault.cause, judged(planted, report))
    table.print()
