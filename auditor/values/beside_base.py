"""`--base` with `--values`: which tensors are those of the base, as far as both were read. Pure."""

from collections.abc import Iterator, Mapping

import numpy as np
from msgspec import Struct

from auditor.downloader.local_blocks import BLOCK
from auditor.messages import quoted
from auditor.reconciler.findings import EqualsBase
from auditor.reconciler.tensor_values import BaseComparison, ModuleChanges
from auditor.tensors import Span
from auditor.values.evidence import Evidence, TensorBytes, common_runs
from auditor.values.name_patterns import NUMBER
from auditor.values.placing import Placed

_SHOWN = 12  # kinds of modules in a note


class BaseNumbers(Struct, frozen=True, kw_only=True):
    """What was read of the base."""

    model: str
    commit: str | None
    placed: Mapping[str, Placed]
    bytes: TensorBytes

    def alike(self, name: str, one: Placed) -> Placed | None:
        """The base's tensor of that name, if shape and dtype are the same."""
        other = self.placed.get(name)
        if other is None or other.span.length != one.span.length:
            return None
        here, there = one.tensor, other.tensor
        return other if (here.dtype, here.shape) == (there.dtype, there.shape) else None


def compared_with(evidence: Evidence, base: BaseNumbers) -> tuple[BaseComparison, bool]:
    """How many tensors are unchanged, and whether each byte of all tensors of both was compared."""
    kinds: dict[str, list[bool]] = {}
    whole = evidence.placed.keys() == base.placed.keys()
    for name, one in evidence.placed.items():
        other = base.alike(name, one)
        same, size = _same(evidence.bytes, one, base.bytes, other) if other else (True, 0)
        whole &= other is not None and size == one.span.length
        if size:
            kinds.setdefault(module_kind(name), []).append(same)
    seen = [same for each in kinds.values() for same in each]
    found = BaseComparison(
        model=base.model,
        commit=base.commit,
        unchanged=sum(seen),
        changed=len(seen) - sum(seen),
        uncompared=len(evidence.placed) - len(seen),
        modules=tuple(
            ModuleChanges(kind, sum(each), len(each) - sum(each))
            for kind, each in sorted(kinds.items())
        ),
    )
    return found, whole


def _same(
    data: TensorBytes, one: Placed, other_data: TensorBytes, other: Placed
) -> tuple[bool, int]:
    """Whether what was read of both is the same, and how many bytes that are."""
    size = 0
    same = True
    for run in common_runs(data.runs(one), other_data.runs(other)):
        for start in range(run.start, run.stop, BLOCK):
            part = Span(start, min(start + BLOCK, run.stop))
            here, there = data.read(one, part), other_data.read(other, part)
            if here is not None and there is not None:
                size += part.length
                same = same and bool(np.array_equal(here, there))
        if not same:
            break
    return same, size


def module_kind(name: str) -> str:
    """The module of a tensor without the layer that it is in: `self_attn.q_proj`."""
    inside = NUMBER.sub("#", name).rpartition("#.")[2]
    return inside.rpartition(".")[0] or inside


def equals_base(
    found: BaseComparison, files: tuple[str, ...], *, whole: bool
) -> Iterator[EqualsBase]:
    """Where each byte of both was compared and none differs, whatever the files are."""
    if whole and found.unchanged and not (found.changed or found.uncompared):
        reason = f"each of {found.unchanged:,} tensors holds the same bytes as in {_at(found)}"
        yield EqualsBase(files=files, reason=reason)


def changes_note(found: BaseComparison, *, sampled: bool) -> str:
    """What was changed, in one line."""
    seen = found.unchanged + found.changed
    if not seen:
        return f"beside {_at(found)}, no tensor could be compared: names, shapes or dtypes differ"
    how = "as far as they were sampled, " if sampled else ""
    left_out = f"; {found.uncompared:,} were not compared" if found.uncompared else ""
    said = f"beside {_at(found)}, {how}{found.unchanged:,} of {seen:,} tensors are unchanged"
    changed = [one for one in found.modules if one.changed]
    names = [f"{one.module} {one.changed:,} of {one.changed + one.unchanged:,}" for one in changed]
    more = f" and {len(names) - _SHOWN:,} more" if len(names) > _SHOWN else ""
    where = f"; changed: {', '.join(names[:_SHOWN])}{more}" if names else ""
    return f"{said}{where}{left_out}"


def _at(found: BaseComparison) -> str:
    return f"{quoted(found.model)}{f' @ {found.commit[:12]}' if found.commit else ''}"
