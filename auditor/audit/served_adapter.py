"""The verdicts of engines on an audited adapter (`--for vllm,peft`)."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from auditor.checkpoint.snapshot import Snapshot
from auditor.containers.safetensors import Header
from auditor.containers.weight_formats import Table
from auditor.engines import (
    OF_ADAPTERS,
    Adapter,
    EngineVerdict,
    judge_adapter,
    knowledge_of,
    unknown_verdict,
)
from auditor.errors import CheckpointError
from auditor.findings import Mismatched, Missing, Unexpected
from auditor.messages import shape_text
from auditor.report import Report, Unaudited

_OWN = ".default."  # the name that PEFT gives an adapter in memory; it accepts it in a file


def adapter_verdicts(
    outcome: Report | Unaudited, snapshot: Snapshot, engines: Sequence[str]
) -> Iterator[EngineVerdict]:
    """Yield the verdict of each engine on an adapter."""
    adapter = _adapter(outcome, snapshot)
    for engine in engines:
        known = knowledge_of(engine)
        if engine not in OF_ADAPTERS:
            yield unknown_verdict(known, "it was not tried with adapters")
        elif isinstance(adapter, str):
            yield unknown_verdict(known, adapter)
        else:
            yield judge_adapter(known, adapter)


def _adapter(outcome: Report | Unaudited, snapshot: Snapshot) -> Adapter | str:
    """Return the adapter as engines find it, or why it was not read."""
    stored = {
        tensor.name: tensor.shape
        for head in snapshot.headers
        if isinstance(head.parsed, Header | Table)
        for tensor in head.parsed.tensors
    }
    if snapshot.config is None or not stored:
        return "the adapter's settings or weights were not read"
    settings = snapshot.config.object
    is_known = isinstance(outcome, Report)  # else the config at hand may be another model's
    architecture, layers = _base(snapshot) if is_known else (None, None)
    missing, unexpected = set[str](), set[str]()
    misfits: dict[str, tuple[tuple[int, ...], tuple[int, ...]]] = {}
    for finding in outcome.findings:
        if Mismatched.describes(finding):
            misfits |= {
                one.stored.name: (one.stored.shape or (), one.expected.shape)
                for one in finding.pairs
            }
        elif Missing.describes(finding):
            missing |= {*finding.names}
        elif Unexpected.describes(finding):
            unexpected |= {*finding.names}
    own = {one for one in unexpected if one.replace(_OWN, ".") in missing}
    missing -= {one.replace(_OWN, ".") for one in own}
    names = {
        one.replace(_OWN, ".") if one in own else one for one in stored.keys() - unexpected | own
    }
    return Adapter(
        settings=settings,
        stored=stored,
        architecture=architecture,
        layers=layers,
        expected=frozenset(names),
        unread=outcome.detail if isinstance(outcome, Unaudited) else "",
        refused=_refused(settings, misfits),
        misfits=misfits,
        missing=len(missing),
    )


def _refused(settings: Mapping[str, Any], misfits: Mapping[str, Any]) -> str:
    """Return why PEFT raises; "" if it does not."""
    if "peft_type" not in settings:
        return "adapter_config.json lacks peft_type"
    for name, (stored, expected) in misfits.items():
        return f"{name} is {shape_text(stored)}, expected {shape_text(expected)}"
    return ""


def _base(snapshot: Snapshot) -> tuple[str | None, int | None]:
    """Return the base's first architecture and the number of its layers; None if not known."""
    if snapshot.base is None or snapshot.base.config is None:
        return None, None
    try:
        config = snapshot.base.config.as_config
        architecture = next(iter(config.architectures), None)
    except CheckpointError:
        return None, None
    text = config.values.get("text_config")
    level = text if isinstance(text, Mapping) else config.values
    count = level.get("num_hidden_layers", level.get("n_layer"))
    return architecture, count if type(count) is int else None
