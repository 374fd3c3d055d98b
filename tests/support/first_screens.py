"""What a terminal shows first for a typical fault of each cause, up to the table of modules."""

from pathlib import Path

from support.fault_bench import faults, written
from support.faults.files import file_faults
from support.faults.names import name_faults

from auditor.audit.options import Options
from auditor.audit.pipeline import examine
from auditor.formats import View, terminal

FAMILIES = ("LlamaForCausalLM", "MixtralForCausalLM")


def first_screens(place: Path) -> str:
    """The screens of the first fault of each cause, each behind the name of its fault."""
    screens: dict[str, str] = {}
    for family in FAMILIES:
        sound = written(family, place)
        planted = (*faults(family, sound), *name_faults(family, sound), *file_faults(family, place))
        for fault in planted:
            if fault.cause not in screens:
                report = examine(fault.snapshot, Options(requested=family))
                top = terminal.render(report, View()).partition("\nmodule ")[0]
                screens[fault.cause] = f"# {fault.cause}: {fault.name}\n{top}"
    return "\n".join(screens[cause] for cause in sorted(screens))
