"""gguf-metadata: a number in a GGUF file's metadata is not that of its tensors.

To do: Write the number, or load the file with `--override-kv`; convert the model again if its
tokens differ.

refused-tensors: a GGUF file lacks tensors that llama.cpp needs, or has others that it refuses.

To do: Convert the model again, from weights that are complete and unpacked.
"""

from collections.abc import Iterator

from msgspec.structs import replace

from auditor.analytic.gguf_architectures import Facts
from auditor.analytic.gguf_projector import ARCHITECTURE as CLIP
from auditor.analytic.gguf_readings import differing, with_values
from auditor.checkpoint.change import Change
from auditor.checkpoint.snapshot import WeightHeader
from auditor.containers.gguf import GgufHeader
from auditor.diagnosis.case import Case, Proposal
from auditor.findings import Mismatched, Missing
from auditor.findings import Unexpected as UnexpectedFinding
from auditor.layouts.gguf import is_refused
from auditor.layouts.gguf_names import names_in_file
from auditor.messages import listed, named, quoted
from auditor.names.folding import fold

_PACKED = ("absmax", "quant_map", "quant_state", "qweight", "qzeros", "g_idx", "weight_scale")


def metadata(case: Case) -> Iterator[Proposal]:
    """Yield the file with a number of its metadata as the tensors show it, one key at a time."""
    for file, header in _headers(case)[:1]:
        facts = Facts(
            header, _architecture(case), {one.name: one.shape or () for one in case.stored}
        )
        for reading in differing(facts):
            used = f"{facts.arch}.expert_used_count"
            values: dict[str, int | None] = {reading.key: reading.shown}
            is_of_experts = reading.key.endswith(".expert_count")
            if is_of_experts and (used not in header.metadata or not reading.shown):
                values[used] = 1 if reading.shown else None
            is_open = bool(values.get(used))
            too = f"; {used} is absent too, and no tensor shows it" if is_open else ""
            known = replace(header, metadata=with_values(header, values))
            yield Proposal(
                cause="gguf-metadata",
                change=Change(files={file.name: replace(file, known=known)}),
                fields=((reading.key, reading.declared, reading.shown),),
                undetermined=((used, None),) if is_open else (),
                summary=f"{reading.difference}{too}",
                fix=reading.remedy(file.name, used if used in values else ""),
                evidence=(f"{reading.tensor} shows {reading.shown}",),
                either=f"{reading.key} = {reading.shown}",
                undecided=(
                    f"the metadata of {named(file.name)} do not fit its tensors",
                    "take the value from the config of the original model: --override-kv KEY=int:N",
                ),
            )


def _headers(case: Case) -> list[tuple[WeightHeader, GgufHeader]]:
    """Return the files with the metadata of the model; only the first shard has them."""
    found = ((head, head.parsed) for head in case.snapshot.headers)
    return [
        (head, table)
        for head, table in found
        if isinstance(table, GgufHeader) and table.text("general.architecture")
    ]


def _architecture(case: Case) -> str:
    return next((table.text("general.architecture") or "" for _, table in _headers(case)), "")


def refused(case: Case) -> Iterator[Proposal]:
    """Yield an explanation of each kind of tensors left, for which llama.cpp refuses the file."""
    for kind, explained in (
        (UnexpectedFinding, _of_unknown),
        (Missing, _of_missing),
        (Mismatched, _of_mismatched),
    ):
        found = tuple(one for one in case.alarms if kind.kind == one.kind)
        if found and (what := explained(case, [name for one in found for name in one.names])):
            summary, fix = what
            refuses = "llama.cpp refuses the file"
            if _architecture(case) == CLIP:  # clip needs some of the tensors
                refuses = f"{refuses}, or computes something else"
            summary = f"{summary}: {refuses}"
            yield Proposal(cause="refused-tensors", proven=found, summary=summary, fix=fix)


def _of_unknown(case: Case, names: list[str]) -> tuple[str, str] | None:
    if _architecture(case) == CLIP or not all(map(is_refused, names)):
        return None
    fix = "convert the model again with a version of llama.cpp that knows them, or without them"
    if any(name.endswith(_PACKED) for name in names):
        fix = "unpack the weights and convert the model again: these are data of packed weights"
    are = "is not a tensor" if len(names) == 1 else "are not tensors"
    arch = f"of the architecture {quoted(_architecture(case))}"
    return f"{len(names):,} of {len(case.stored):,} tensors {are} {arch} ({listed(names)})", fix


def _of_missing(case: Case, names: list[str]) -> tuple[str, str] | None:
    is_clip = _architecture(case) == CLIP
    needed = fold(names if is_clip else names_in_file(case.report.model_type or "", names))
    if not needed or (not is_clip and all(name.endswith(".bias") for name in names)):
        return None  # many architectures have optional biases
    fix = "convert the model again, from complete weights, or download the file again"
    return f"{listed(needed)} {'is' if len(names) == 1 else 'are'} not stored", fix


def _of_mismatched(case: Case, _names: list[str]) -> tuple[str, str] | None:
    first, more = case.mismatched[0], len(case.mismatched) - 1
    others = f", and {more:,} more differ" if more else ""
    stored, expected = first.stored, first.expected.shape
    shapes = f"{quoted(stored.name)} has the shape {stored.shape}, its part {expected} expected"
    if (stored.shape or ()) and len(stored.shape or ()) == len(expected):
        shapes = f"{quoted(stored.name)} has the shape {stored.shape}, expected {expected}"
    return f"{shapes} by the metadata{others}", "convert the model again"
