"""other-architecture: another model type fits: the config was copied from another model.

The types of the catalogue whose names are most like those that are stored are given a config: that
which is declared, then what the stored lengths and numbers say of every key that their formulas
show. A type counts where nothing differs then.

To do: Take the config of the model whose weights these are.
"""

import json
import re
from collections.abc import Iterator, Mapping
from functools import lru_cache, partial
from itertools import islice
from typing import Any, NamedTuple

from msgspec.structs import replace

from auditor.analytic import Config, catalogue
from auditor.checkpoint.snapshot import Snapshot
from auditor.diagnosis.case import Case, Undoing
from auditor.diagnosis.causes import config_field, other_size
from auditor.diagnosis.changes import value_at, with_values
from auditor.diagnosis.name_kinds import name_pattern
from auditor.diagnosis.solving.candidates import KeyChange
from auditor.diagnosis.solving.holdings import HeldTensors
from auditor.diagnosis.solving.joint import solve
from auditor.diagnosis.solving.keys import Key
from auditor.diagnosis.solving.outline import leaves
from auditor.diagnosis.solving.trials import ClassTree, Trials
from auditor.errors import CheckpointError, SourceError
from auditor.messages import quoted

CAUSE = "other-architecture"
_STRANGE = (
    0.05  # of the kinds of names that are stored: below, it is this type with a fault of its own
)
_ALIKE = 0.4  # of the kinds of names of both sides: those of no other type are more alike
_MOST_TYPES = 8  # that are given a config
_MOST_CLASSES = 3  # of one type
_MOST_SHOWN = 4  # types that fit
_MOST_AUDITED = 2
_SECONDS = 0.1  # of processor time for one config of one class
_SHOWN = 8  # values

# What a config says of its files and not of its model.
_KEPT = ("dtype", "torch_dtype", "quantization_config", "transformers_version")

# Of several types with the same tensors, those that most published models are of.
_USUAL = ("llama", "bert", "gpt2", "qwen2", "mistral", "roberta", "t5", "vit", "clip")


_TASK = re.compile(r"(For[A-Z]\w*|LMHeadModel|MTModel)$")


class _Likeness(NamedTuple):
    alike: float  # kinds of names that both sides have, of all that either has
    as_spelt: int  # of them those that both have with the prefix of the base model, or without
    like_declared: bool  # its name ends as that of the declared class
    model_type: str
    target: str


def undoings(case: Case) -> Iterator[Undoing]:
    """The types of the catalogue that fit exactly, unless the user asked for a class."""
    if case.target is not None or not _may_be_another(case) or other_size.fits(case):
        return
    found = list(islice(_fitting(case), _MOST_SHOWN))
    others = [one.of.model_type for one in found]
    for one in found[:_MOST_AUDITED]:
        same = one.of.model_type == case.config.get("model_type")
        yield _of_same_type(case, one) if same else _undoing(case, one, others)


def _may_be_another(case: Case) -> bool:
    """Whether enough of the names is strange, or nothing follows from the config at all."""
    if case.report.expected is None:
        return {finding.kind for finding in case.alarms} == {"bad-config"} and bool(case.stored)
    strange = {kind.pattern for kind in (*case.unexpected_kinds, *case.missing_kinds)}
    return len(strange) > _STRANGE * len(case.holdings.kinds)


def _undoing(case: Case, one: "_Fit", others: list[str]) -> Undoing:
    model_type, target = one.of.model_type, one.of.target
    more = [quoted(other) for other in others if other != model_type]
    or_else = f" (or {' or '.join(more)})" if more else ""
    declared = case.config.get("model_type")
    solved = ", ".join(f"{path} {value}" for path, value in sorted(one.values.items())[:_SHOWN])
    return Undoing(
        cause=CAUSE,
        snapshot=with_values(one.base, one.values),
        fields=(
            ("model_type", declared, model_type),
            ("architectures", case.config.get("architectures"), [target]),
        ),
        summary=f"the files hold a model of the type {quoted(model_type)}"
        f"{or_else}, and the config is that of "
        f"{quoted(str(declared))}",
        fix=f"take the config of the model whose weights these are: {target}, model_type "
        f"{quoted(model_type)}",
        evidence=(
            f"{one.of.alike:.0%} of the kinds of names are those of {target}",
            *((f"with {solved}",) if solved else ()),
        ),
        exact=True,
    )


def _of_same_type(case: Case, one: "_Fit") -> Undoing:
    """A config of this very type, from which nothing follows by what it says of something else."""
    said = {**one.values, "architectures": [one.of.target]}
    changes = tuple(
        KeyChange(Key(path, value_at(case.config, path), default=False), value)
        for path, value in said.items()
        if value_at(case.config, path) != value
    )
    return config_field.undoing_of(case, changes)


class _Fit(NamedTuple):
    """A class with which nothing differs, and the config that it takes."""

    of: _Likeness
    base: Snapshot
    values: Mapping[str, Any]  # set in the base's config


def _fitting(case: Case) -> Iterator[_Fit]:
    """One class of each type with which nothing differs, most alike first."""
    trials = Trials(case.holdings, None)
    tried: dict[str, int] = {}
    fits: set[str] = set()
    for each in _most_alike(case, case.holdings):
        if each.model_type in fits or len(tried) >= _MOST_TYPES:
            continue
        tried[each.model_type] = tried.get(each.model_type, 0) + 1
        if tried[each.model_type] > _MOST_CLASSES:
            continue
        for base in _bases(case, each):
            solution = solve(_values(base), partial(_tree, case, base), trials, _SECONDS)
            if solution is not None and not solution.remains.differ:
                fits.add(each.model_type)
                yield _Fit(each, base, solution.values)
                break


def _bases(case: Case, each: _Likeness) -> Iterator[Snapshot]:
    """The checkpoint under its config as that of another type; under that type's defaults."""
    said = {"model_type": each.model_type, "architectures": [each.target]}
    kept = {key: case.config[key] for key in _KEPT if key in case.config}
    for config in ({**case.config, **said}, {**kept, **said}):
        content = json.dumps(config).encode()
        if case.snapshot.config is not None:
            yield replace(case.snapshot, config=replace(case.snapshot.config, content=content))


def _values(snapshot: Snapshot) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(snapshot.config.content) if snapshot.config else {}
    return found


def _tree(case: Case, base: Snapshot, values: Mapping[str, Any]) -> ClassTree | None:
    try:
        return case.tree(with_values(base, values))
    except (CheckpointError, ValueError):
        return None


def _most_alike(case: Case, holdings: HeldTensors) -> list[_Likeness]:
    """Classes of other types by the kinds of names that they share with the files, best first."""
    stored = frozenset(kind.pattern for kind in holdings.name_kinds)
    declared = next(iter(case.report.declared), "")
    found: list[_Likeness] = []
    same = _names(case.report.model_type or "", case.report.target or "")
    for model_type in catalogue.model_types():
        if model_type == case.report.model_type:
            continue
        prefix = catalogue.family(model_type).prefix
        have = frozenset(_bare(name, prefix) for name in stored)
        for target in catalogue.siblings(model_type):
            if _names(model_type, target) == same:
                continue  # a twin: what differs from one differs from the other
            names, spelt = _names(model_type, target)
            alike = len(have & names) / max(1, len(have | names))
            if alike >= _ALIKE:
                ending = _ending(target) == _ending(declared)
                one = _Likeness(alike, len(spelt & stored), ending, model_type, target)
                found.append(one)
    return sorted(found, key=_order)


def _order(one: _Likeness) -> tuple[object, ...]:
    rank = _USUAL.index(one.model_type) if one.model_type in _USUAL else len(_USUAL)
    return (-one.alike, -one.as_spelt, not one.like_declared, rank, one.model_type)


def _ending(target: str) -> str:
    """What a class does, by its name: ForMaskedLM, LMHeadModel."""
    found = _TASK.search(target)
    return "ForCausalLM" if found and found[0] == "LMHeadModel" else found[0] if found else ""


@lru_cache(maxsize=512)
def _names(model_type: str, target: str) -> tuple[frozenset[str], frozenset[str]]:
    """The kinds of names of a class by the defaults of its config, without the prefix and with."""
    try:
        tree = catalogue.block_tree(Config(values={"model_type": model_type}), target)
    except (CheckpointError, SourceError, LookupError):
        return frozenset(), frozenset()
    prefix = catalogue.family(model_type).prefix
    names = frozenset(name_pattern(leaf.name) for leaf in leaves(tree))
    return frozenset(_bare(name, prefix) for name in names), names


def _bare(name: str, prefix: str) -> str:
    return name.removeprefix(f"{prefix}.") if prefix else name
