"""other-architecture: another model type fits: the config was copied from another model.

The types of the catalogue whose names are most like those that are stored are given a config: that
which is declared, then what the stored lengths and numbers say of every key that their formulas
show. A type counts where nothing differs then.
"""

from collections.abc import Iterator, Mapping
from functools import lru_cache, partial
from typing import Any, NamedTuple

from auditor.analytic import Config, catalogue
from auditor.diagnosis.case import Case, Undoing
from auditor.diagnosis.changes import with_values
from auditor.diagnosis.solving.determined import determined
from auditor.diagnosis.solving.holdings import Holdings, pattern
from auditor.diagnosis.solving.outline import leaves
from auditor.diagnosis.solving.stored import holdings_of
from auditor.diagnosis.solving.trials import ClassTree, Trials
from auditor.errors import CheckpointError, SourceError
from auditor.messages import quoted

CAUSE = "other-architecture"
_STRANGE = 0.1  # of the names that are stored: below, it is this type with a fault of its own
_ALIKE = 0.4  # of the kinds of names of both sides: those of no other type are more alike
_MOST_TYPES = 8  # that are given a config
_MOST_AUDITED = 2

# Of several types with the same tensors, those that most published models are of.
_USUAL = ("llama", "bert", "gpt2", "qwen2", "mistral", "roberta", "t5", "vit", "clip")


class _Likeness(NamedTuple):
    alike: float  # kinds of names that both sides have, of all that either has
    model_type: str
    target: str


def undoings(case: Case) -> Iterator[Undoing]:
    """The types of the catalogue that fit exactly, unless the user asked for a class."""
    if case.target is not None or not (case.missing and case.unexpected):
        return
    holdings = holdings_of(case)
    if len(case.unexpected) < _STRANGE * len(holdings.shapes):
        return
    found = list(_fitting(case, holdings))
    others = [each.model_type for each, *_ in found]
    for each, values, differ in found[:_MOST_AUDITED]:
        more = f" (or {' or '.join(map(quoted, others[1:3]))})" if others[1:] else ""
        declared = case.report.model_type or case.config.get("model_type")
        solved = sorted(values.keys() - {"model_type", "architectures"})
        yield Undoing(
            cause=CAUSE,
            snapshot=with_values(case.snapshot, _whole(case, each, values)),
            fields=(
                ("model_type", case.config.get("model_type"), each.model_type),
                ("architectures", case.config.get("architectures"), [each.target]),
            ),
            summary=f"the files hold a model of the type {quoted(each.model_type)}{more}, and the "
            f"config is that of {quoted(str(declared))}",
            fix=f"take the config of the model whose weights these are: {each.target}, model_type "
            f"{quoted(each.model_type)}",
            evidence=(
                f"{each.alike:.0%} of the kinds of names are those of {each.target}",
                *((f"with {_listed(solved, values)}",) if solved else ()),
            ),
            exact=not differ,
        )


def _listed(solved: list[str], values: Mapping[str, Any]) -> str:
    return ", ".join(f"{path} {values[path]}" for path in solved[:8])


def _whole(case: Case, each: _Likeness, values: Mapping[str, Any]) -> dict[str, Any]:
    del case
    return {**values, "model_type": each.model_type, "architectures": [each.target]}


def _fitting(case: Case, holdings: Holdings) -> Iterator[tuple[_Likeness, Mapping[str, Any], int]]:
    """Types with which nothing differs, and the values of the config that it takes."""
    trials = Trials(holdings, None)
    seen: set[str] = set()
    for each in _most_alike(case, holdings)[: 2 * _MOST_TYPES]:
        if each.model_type in seen or len(seen) >= _MOST_TYPES:
            continue
        trees = partial(_tree, case, each)
        values, differ = determined({**case.config, "model_type": each.model_type}, trees, trials)
        if differ == 0:
            seen.add(each.model_type)
            yield each, values, differ


def _tree(case: Case, each: _Likeness, values: Mapping[str, Any]) -> ClassTree | None:
    said = {**values, "model_type": each.model_type, "architectures": [each.target]}
    try:
        return case.tree(with_values(case.snapshot, said))
    except (CheckpointError, ValueError):
        return None


def _most_alike(case: Case, holdings: Holdings) -> list[_Likeness]:
    """Classes of other types by the kinds of names that they share with the files, best first."""
    stored = frozenset(pattern(kind.first) for kind in holdings.kinds)
    found: list[_Likeness] = []
    for model_type in catalogue.model_types():
        if model_type == case.report.model_type:
            continue
        prefix = catalogue.family(model_type).prefix
        have = frozenset(_bare(name, prefix) for name in stored)
        for target in catalogue.siblings(model_type):
            names = _names(model_type, target)
            alike = len(have & names) / max(1, len(have | names))
            if alike >= _ALIKE:
                found.append(_Likeness(alike, model_type, target))
    return sorted(found, key=lambda one: (-one.alike, _rank(one.model_type), one.model_type))


def _rank(model_type: str) -> int:
    return _USUAL.index(model_type) if model_type in _USUAL else len(_USUAL)


@lru_cache(maxsize=512)
def _names(model_type: str, target: str) -> frozenset[str]:
    """The kinds of names of a class by the defaults of its config, without the prefix."""
    try:
        tree = catalogue.block_tree(Config(values={"model_type": model_type}), target)
    except (CheckpointError, SourceError):
        return frozenset()
    prefix = catalogue.family(model_type).prefix
    return frozenset(_bare(pattern(leaf.name), prefix) for leaf in leaves(tree))


def _bare(name: str, prefix: str) -> str:
    return name.removeprefix(f"{prefix}.") if prefix else name
