"""lost-part: a whole declared tower is absent: vision, audio, decoder, projector.

The undoing puts it back. What makes it a cause is that nothing of the part is stored and nothing
else is missing; a class of the model type that does without it is the other way out.

To do: Save the whole model again, or upload the file that holds the part; or declare a class
without it.
"""

import json
import re
from collections.abc import Iterable, Iterator

from msgspec.structs import replace

from auditor.analytic import ExpectedTensor
from auditor.checkpoint.snapshot import Snapshot, TextFile
from auditor.diagnosis.case import Case, Undoing
from auditor.diagnosis.causes.other_class import other_classes
from auditor.diagnosis.changes import value_at, with_values
from auditor.errors import CheckpointError
from auditor.findings import Missing
from auditor.messages import quoted
from auditor.tensors import Span, StoredTensor

CAUSE = "lost-part"
_MOST_PARTS = 3  # absent parts of one model
_NUMBER = re.compile(r"\.\d+\.")
_BETWEEN = re.compile(r"(projector|merger|resampler|connector|aligner|adapter)$")
_DEEPEST = 3  # dotted parts of the absent part's name
_DRAFTING = ("mtp_num_hidden_layers", "num_nextn_predict_layers")


def undoings(case: Case) -> Iterator[Undoing]:
    yield from _language_model_alone(case)
    if {finding.kind for finding in case.alarms} != {"missing"}:
        return
    parts = absent_parts(case.missing, _spellings(case))
    if not 0 < len(parts) <= _MOST_PARTS or not any(_is_tower(part, case) for part in parts):
        return
    names = " and ".join(f"{quoted(part)} ({count:,} tensors)" for part, count in parts.items())
    others = other_classes(case) if case.target is None else []
    way_out = f'set architectures to ["{others[0]}"]' if others else "take the config of a model "
    way_out += "" if others else "without it"
    verb = "is" if len(parts) == 1 else "are"
    yield Undoing(
        cause=CAUSE,
        snapshot=with_missing(case),
        summary=f"{names} {verb} declared, and nothing of it is stored",
        fix=f"save the whole model again, or upload the file that holds it; or {way_out}",
        evidence=(f"no stored name begins with {next(iter(parts))}", "all else is stored"),
    )


def _is_tower(part: str, case: Case) -> bool:
    """Whether the part has layers of its own, or connects two towers that have."""
    within = (name[len(part) :] for name in case.missing if name.startswith(f"{part}."))
    return bool(_BETWEEN.search(part)) or any(_NUMBER.search(name) for name in within)


def _spellings(case: Case) -> Iterator[str]:
    """Yield the stored names, with and without the base model's prefix."""
    yield from case.shapes or case.holdings.shapes
    try:
        expected = case.tree(case.snapshot)
    except CheckpointError:
        return
    if expected is not None and (prefix := expected.prefix):
        for name in case.holdings.shapes:
            yield f"{prefix}.{name}"
            yield name.removeprefix(f"{prefix}.")


def absent_parts(missing: Iterable[str], stored: Iterable[str]) -> dict[str, int]:
    """Return the outermost modules that are not stored at all, with their numbers of tensors."""
    stored_modules: set[str] = set()
    for name in stored:
        parts = name.split(".")
        stored_modules.update(".".join(parts[:length]) for length in range(1, _DEEPEST + 1))
    counts: dict[str, int] = {}
    for name in missing:
        parts = name.split(".")[:-1]
        prefixes = (".".join(parts[:length]) for length in range(1, len(parts) + 1))
        part = next((one for one in prefixes if one not in stored_modules), "")
        if not part or part.count(".") >= _DEEPEST or part.rpartition(".")[2].isdecimal():
            return {}
        counts[part] = counts.get(part, 0) + 1
    return counts


def with_missing(case: Case) -> Snapshot:
    """Return the checkpoint with the missing tensors added to its first readable file."""
    heads = list(case.snapshot.headers)
    missing = [
        one for item in case.report.findings if isinstance(item, Missing) for one in item.tensors
    ]
    dtype = next((tensor.dtype for tensor in case.stored), "F32")
    for at, head in enumerate(heads):
        if isinstance(head.parsed, CheckpointError):
            continue
        more = (_stored(one, dtype, head.name) for one in missing)
        table = replace(head.parsed, tensors=tuple(sorted((*head.parsed.tensors, *more))))
        heads[at] = replace(head, known=table, size=None)
        return replace(case.snapshot, headers=tuple(heads), index=None)
    return replace(case.snapshot, index=_index_with(case.snapshot.index, missing))


def _index_with(index: TextFile | None, missing: list[ExpectedTensor]) -> TextFile | None:
    """Return the index with the missing names, and without its total, which excludes them."""
    if index is None:
        return None
    try:
        values = json.loads(index.content)
        files = values["weight_map"]
        file = min(files.values())
    except (ValueError, TypeError, LookupError, AttributeError):
        return index
    values["weight_map"] = {**files, **{one.name: file for one in missing}}
    values["metadata"] = {}
    return TextFile(name=index.name, content=json.dumps(values).encode())


def _stored(one: ExpectedTensor, dtype: str | None, file: str) -> StoredTensor:
    return StoredTensor(one.name, dtype, one.shape, one.elements, file, Span(0, 0))


def _language_model_alone(case: Case) -> Iterator[Undoing]:
    """Yield the language model's class, if the declared class has no other parts here."""
    report = case.report
    if report.target is None or case.target is not None or not report.declared:
        return
    kinds = {finding.kind for finding in case.alarms}
    if kinds != {"bad-config"} or report.declared[0] == report.target:
        return
    declared, target = report.declared[0], report.target
    values: dict[str, object] = {"architectures": [target]}
    drafting = [
        (key, count, 0)
        for key in _DRAFTING
        if (count := value_at(case.config, key)) and any(key in note for note in report.notes)
    ]
    values |= dict.fromkeys((key for key, *_ in drafting), 0)
    more = f", nor the {drafting[0][1]} layers for drafting tokens" if drafting else ""
    yield Undoing(
        cause=CAUSE,
        snapshot=with_values(case.snapshot, values),
        fields=(("architectures", list(report.declared), [target]), *drafting),
        summary=f"{declared} has parts beside its language model, and neither they{more} nor a "
        f"config of them are here: the files hold a {target}",
        fix=f'set architectures to ["{target}"] in config.json, or upload the whole {declared}',
        evidence=(f"every stored tensor is one of {target}",),
    )
