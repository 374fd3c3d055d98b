"""Models whose class is the repository's own code, which is never run.

transformers has a class for the model type, and the repository's class may be a copy of it or a
different class with its name. The tensor names, compared without their numbers, show which it is:
no BERT of transformers has a tensor `encoder.layer.#.attention.self.Wqkv.weight`. If the names fit,
the stored tensors are compared with transformers' class. A native twin, whose config was mapped,
must have every stored kind of name; a kind that no file stores is a finding.
"""

import re
from collections.abc import Iterable

from msgspec.structs import replace

from auditor.analytic import Expectation, Role
from auditor.analytic.target import AUDITED_AS
from auditor.audit.outcome import ModelAudit, unaudited_outcome
from auditor.errors import Reason
from auditor.findings import Finding, FindingKind, Missing, Unexpected
from auditor.messages import named, quoted
from auditor.report import Report, Unaudited

_NUMBER = re.compile(r"(?<![^.])\d+(?![^.])")


def if_comparable(
    case: ModelAudit,
    outcome: Report | Unaudited,
    expectation: Expectation,
    custom: str,
    *,
    is_twin: bool,
) -> Report | Unaudited:
    """Return the outcome if the names fit transformers' class, else an Unaudited outcome.

    `custom` is the name of the class in auto_map, `is_twin` whether transformers took it over.
    """
    target = expectation.target
    why = _misfit(outcome, expectation, is_twin=is_twin) if isinstance(outcome, Report) else None
    if why:
        return custom_code(case, custom, why)
    note = f"auto_map names the repository's own class {quoted(custom)}; "
    comparison = f"its names are those of transformers' {target}, with which it is compared"
    if is_twin:
        comparison = f"its native twin is transformers' {target}: compared by map"
    return replace(outcome, notes=(*outcome.notes, note + comparison))


def custom_code(
    case: ModelAudit, custom: str, why: str, reason: Reason = Reason.CUSTOM_CODE
) -> Unaudited:
    """Return the outcome for a repository's own class: tensors are counted and not compared."""
    target = custom.rpartition(".")[2]
    notes = tuple(note for note in case.outcome.notes if AUDITED_AS not in note)
    case = case.with_outcome(target=target, expected=None, kv_cache=None, notes=notes)
    detail = f"its class is the repository's own code ({quoted(custom)} in auto_map), which is not"
    return unaudited_outcome(case, reason, f"{detail} run; {why}")


def _misfit(outcome: Report, expectation: Expectation, *, is_twin: bool) -> str | None:
    """Return a clause about name patterns that only the files or only transformers' class has.

    Return None if there is no difference.
    """
    needed = {
        tensor.name for tensor in expectation.tensors if tensor.role in {Role.PARAMETER, Role.TIED}
    }
    missing_names = _names(Missing, outcome.findings)
    prefix = f"{expectation.prefix}." if expectation.prefix else ""
    known_kinds = _kinds(tensor.name.removeprefix(prefix) for tensor in expectation.tensors)
    unknown_kinds = _kinds(
        name.removeprefix(prefix) for name in _names(Unexpected, outcome.findings)
    )
    if kinds := sorted(unknown_kinds - known_kinds):
        return f"transformers' {expectation.target} has no {named(kinds[0])}{_more_kinds(kinds)}"
    lacking = sorted(_kinds(missing_names) - _kinds(needed.difference(missing_names)))
    if lacking and not is_twin:
        detail = f"transformers' {expectation.target} has {named(lacking[0])}{_more_kinds(lacking)}"
        return f"{detail}, and no file stores it"
    return None


def _names(kind: FindingKind[..., Finding], findings: Iterable[Finding]) -> list[str]:
    return [name for one in findings if kind.describes(one) for name in one.names]


def _kinds(names: Iterable[str]) -> frozenset[str]:
    """Return the names with `#` for each number, so that the number of layers does not matter."""
    return frozenset(_NUMBER.sub("#", name) for name in names)


def _more_kinds(kinds: list[str]) -> str:
    more = len(kinds) - 1
    return f" and {more:,} more kind{'s' if more > 1 else ''} of names" if more else ""
