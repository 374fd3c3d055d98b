"""other-architecture: another model type fits: the config was copied from another model.

Configs are tried for the known model types whose names are most similar to the stored ones. They
start with the declared values; then each key that a formula contains gets the value that fits the
stored lengths and numbers. A type is the cause only if no tensor differs.

To do: Take the config of the model that the weights belong to.
"""

import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from functools import partial
from itertools import islice
from typing import Any, NamedTuple

from auditor.analytic.config_keys import Key, changed, typed_parts, value_at
from auditor.analytic.diffusion.original_models import published_configs
from auditor.analytic.likeness import Likeness, likenesses, names_of_class
from auditor.analytic.outline import ClassTree
from auditor.checkpoint.change import with_config
from auditor.diagnosis.alignment import shared_start
from auditor.diagnosis.case import Case, Proposal
from auditor.diagnosis.causes import config_field, other_class, other_size
from auditor.diagnosis.solving.candidates import KeyChange
from auditor.diagnosis.solving.joint import solve
from auditor.diagnosis.solving.trials import Trials
from auditor.errors import CheckpointError
from auditor.messages import quoted

CAUSE = "other-architecture"
_STRANGE = 0.05  # least share of kinds of names that differ; below it, the type is right
_MOST_TYPES = 8  # model types for which a config is solved
_MOST_CLASSES = 3  # classes of one type or part for which a config is solved
_EQUAL = 0.9  # least overlap of a part's names with those of a class
_DEEPEST = 6  # the most segments in the name of a part's module
_MOST_AUDITED = 6  # fitting classes
_SECONDS = 0.1  # processor time for one config of one class
_ALL_SECONDS = 1.0  # after which no further type is tried; types that fit take up to 0.2
_SHOWN = 8  # values in a message

# Keys of a config that describe its files and not its model.
_KEPT = ("dtype", "torch_dtype", "quantization_config", "transformers_version")


def proposals(case: Case) -> Iterator[Proposal]:
    """Yield the model types of the catalogue that fit exactly, unless the user chose a class."""
    if case.target is not None or other_size.fits(case):
        return
    yield from _published(case)
    if not _may_be_another(case):
        return
    yield from _of_parts(case)
    for fit in islice(_fitting(case), _MOST_AUDITED):
        is_same = fit.likeness.model_type == case.config.get("model_type")
        yield _of_same_type(case, fit) if is_same else _proposal(case, fit)
        if fit.likeness.target == case.config.get("architectures"):
            return  # the config states this class, as a string


def _may_be_another(case: Case) -> bool:
    """Whether enough names differ for another model type, or the config implies no tensors.

    Another type has names or shapes of its own, beside names that it lacks in its layers; a missing
    head is not a sign of another type, nor are layers beyond the depth that are like the others.
    """
    if case.report.expected is None:
        return {finding.kind for finding in case.alarms} == {"bad-config"} and bool(case.stored)
    if not (case.unexpected or case.mismatched):
        return False  # lost tensors: a class without them loads, and computes something else
    lacking = (kind for kind in case.missing.kinds if kind.places)
    strange = {kind.pattern for kind in (*case.unexpected.kinds, *lacking)}
    unexpected = frozenset(case.unexpected.names)
    stored = (kind for kind in case.unpacked_on_disk.name_kinds if kind.pattern in strange)
    strange -= {kind.pattern for kind in stored if not unexpected.issuperset(kind.names)}
    return len(strange) > _STRANGE * len(case.unpacked_on_disk.kinds)


def _proposal(case: Case, fit: "_Fit") -> Proposal:
    model_type, target = fit.likeness.model_type, fit.likeness.target
    declared = case.config.get("model_type")
    is_of = quoted(str(declared or case.report.target))
    solved = ", ".join(f"{path} {value}" for path, value in sorted(fit.values.items())[:_SHOWN])
    return Proposal(
        cause=CAUSE,
        change=case.with_config(changed(fit.base, fit.values)),
        fields=(
            ("model_type", declared, model_type),
            ("architectures", case.config.get("architectures"), [target]),
        ),
        summary=f"the files hold a model of the type {quoted(model_type)}, and the config is that "
        f"of {is_of}",
        fix=f"take the config of the model whose weights these are: {target}, model_type "
        f"{quoted(model_type)}",
        evidence=(
            f"{fit.likeness.alike:.0%} of the kinds of names are those of {target}",
            *((f"with {solved}",) if solved else ()),
        ),
        # The declared class decides between types that fit.
        either="" if target in case.report.declared else f"{quoted(model_type)} ({target})",
        undecided=(
            f"the config is that of {is_of}, and the files hold a model of another type",
            "take the config of the model whose weights these are",
        ),
        exact=True,
    )


def _of_same_type(case: Case, fit: "_Fit") -> Proposal:
    """Return the proposal that corrects the class or the keys, if the declared type is right."""
    if case.report.declared and not fit.values:
        return other_class.of_class(case, fit.likeness.target)
    values = {**fit.values, "architectures": [fit.likeness.target]}
    changes = tuple(
        KeyChange(Key(path, value_at(case.config, path), default=False), value)
        for path, value in values.items()
        if value_at(case.config, path) != value
    )
    return config_field.proposal_of(case, changes)


def _published(case: Case) -> Iterator[Proposal]:
    """Yield the configs of published models of diffusers whose component fits, in its own sizes."""
    component, trials = str(case.config.get("_class_name", "")), Trials(case.unpacked_on_disk, None)
    for name, config in published_configs(component) if component else ():
        base = {"_class_name": component, **config}
        values = _fitting_values(case, base, trials)
        if values is not None:
            yield Proposal(
                cause=other_size.CAUSE,
                change=case.with_config(changed(base, values)),
                summary=f"the files hold a {component} like that of {name}, and the config is that "
                "of another model",
                fix="take the config.json of the model whose weights these are",
                exact=True,
                certain=False,
            )


def _of_parts(case: Case) -> Iterator[Proposal]:
    """Yield the config with another model type in a nested config, if the class then fits.

    The part's names are those below a module that contains all missing and unexpected names.
    """
    names = [kind.parts for kind in (*case.missing.kinds, *case.unexpected.kinds)]
    shared = shared_start(min(names, default=[]), max(names, default=[]))
    trials, found = Trials(case.unpacked_on_disk, None), set[str]()
    for path, declared, _ in typed_parts(case.config):
        for length in range(min(len(shared), _DEEPEST), 0, -1):
            start = ".".join([*shared[:length], ""])
            patterns = (kind.pattern for kind in case.unpacked_on_disk.name_kinds)
            inside = frozenset(one.removeprefix(start) for one in patterns if one.startswith(start))
            for likeness in likenesses(inside, "", frozenset({declared}))[:_MOST_CLASSES]:
                model_type = likeness.model_type
                base = changed(case.config, {f"{path}.model_type": model_type})
                values = _fitting_values(case, base, trials) if likeness.alike > _EQUAL else None
                if values is not None and model_type not in found:
                    found.add(model_type)
                    fix = f"take the {path} of the model whose weights these are"
                    other = f"the files hold another type under {start.removesuffix('.')}"
                    yield Proposal(
                        cause=CAUSE,
                        change=case.with_config(changed(base, values)),
                        fields=((f"{path}.model_type", declared, model_type),),
                        summary=f"{path} is that of {quoted(declared)}, and the files hold "
                        f"{quoted(model_type)} under {start.removesuffix('.')}",
                        fix=f"{fix}: model_type {quoted(model_type)}",
                        either=quoted(model_type),
                        undecided=(f"{path} is that of {quoted(declared)}, and {other}", fix),
                        exact=True,
                    )
            if found:
                return


class _Fit(NamedTuple):
    """A class whose expected tensors all match the stored ones, and the config for it."""

    likeness: Likeness
    base: Mapping[str, Any]  # a config of that class
    values: Mapping[str, Any]  # to set in `base`


def _fitting(case: Case) -> Iterator[_Fit]:
    """Yield the classes whose expected tensors match; the most similar first."""
    trials = Trials(case.unpacked, None)
    tried: dict[str, int] = {}
    fits: dict[str, _Fit] = {}
    until = time.thread_time() + _ALL_SECONDS
    for likeness in _most_alike(case):
        if len(tried) >= _MOST_TYPES or time.thread_time() > until:
            return
        if fit := fits.get(likeness.model_type):
            yield from _alike(case, fit, likeness, trials)
            continue
        tried[likeness.model_type] = tried.get(likeness.model_type, 0) + 1
        if tried[likeness.model_type] > _MOST_CLASSES:
            continue
        for base in _bases(case, likeness):
            values = _fitting_values(case, base, trials)
            if values is not None:
                fits[likeness.model_type] = _Fit(likeness, base, values)
                yield fits[likeness.model_type]
                break


def _alike(case: Case, fit: _Fit, likeness: Likeness, trials: Trials) -> Iterator[_Fit]:
    """Yield the fit with another class of its type, if that class expects the same tensors."""
    base = {**fit.base, "architectures": [likeness.target]}
    tree = _tree(case, base, fit.values)
    if tree is not None and not trials.compare(tree).differ:
        yield _Fit(likeness, base, fit.values)


def _fitting_values(
    case: Case, base: Mapping[str, Any], trials: Trials
) -> Mapping[str, Any] | None:
    """Return the values with which the config `base` implies the stored tensors, if there are."""
    found = solve(base, partial(_tree, case, base), trials, seconds=_SECONDS)
    return found[0].values if found and not found[0].remains.differ else None


def _bases(case: Case, likeness: Likeness) -> Iterator[dict[str, Any]]:
    """Yield the config changed to this type, then the type's defaults."""
    declared = {"model_type": likeness.model_type, "architectures": [likeness.target]}
    kept = {key: case.config[key] for key in _KEPT if key in case.config}
    if case.snapshot.config is not None:
        yield {**case.config, **declared}
        yield {**kept, **declared}


def _tree(case: Case, base: Mapping[str, Any], values: Mapping[str, Any]) -> ClassTree | None:
    with suppress(CheckpointError, ValueError):
        return case.tree(with_config(case.snapshot, changed(base, values)))
    return None


def _most_alike(case: Case) -> list[Likeness]:
    """Return classes of other types, sorted by the share of names that they have in common."""
    stored = frozenset(kind.pattern for kind in case.unpacked.name_kinds)
    declared = next(iter(case.report.declared), "")
    is_known = case.report.expected is not None
    own_types = frozenset({case.report.model_type or ""} if is_known else ())
    own_names = names_of_class(case.report.model_type or "", case.report.target or "")
    return likenesses(stored, declared, own_types, own_names)
