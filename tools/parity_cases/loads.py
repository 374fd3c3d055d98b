"""What is loaded: a checkpoint of one class, laid out or spoilt in some way, into another."""

import re
from collections.abc import Iterable, Iterator
from math import prod
from random import Random
from typing import Any, NamedTuple

from support.bert_configs import config_of

from auditor.analytic import Expectation, Role, catalogue
from auditor.analytic import generated as forms
from parity_cases import large
from parity_cases.configs import expectation, small_config
from parity_cases.layouts import layouts, unexpected_patterns
from parity_cases.spoiling import Stored, spoilt, written

IGNORED = "names that it ignores"
CLASSES = 3  # of a type for the oracle, drawn at random
SPOILINGS = 4  # of those into the own class, likewise; of those into another class one
LEARNED = 2  # both, for generated forms, which are of more types


class Load(NamedTuple):
    """One checkpoint as names and shapes, and the class that it is loaded into."""

    source: str  # who says what is expected: closed form, generated form, oracle
    model_type: str
    saved: str  # the class whose checkpoint it is
    loaded: str
    case: str
    values: dict[str, Any]  # of config.json, but for its architectures
    stored: Stored
    model: int  # elements of the class that it is loaded into

    @property
    def elements(self) -> int:
        """How many are stored."""
        return sum(map(prod, self.stored.values()))


# --- closed forms: all classes into all, in every way ------------------------------------------


def of_closed_form(model_type: str, number: int) -> Iterator[Load]:
    """Every load of one small config of the model type; another number is another config."""
    values = {**small_config(model_type, number), "model_type": model_type}
    for tied in (True, False):
        yield from _of_config(model_type, values | {"tie_word_embeddings": tied}, tied=tied)


def _of_config(model_type: str, values: dict[str, Any], *, tied: bool) -> Iterator[Load]:
    classes = catalogue.siblings(model_type)
    expected = {name: expectation(model_type, values, name) for name in classes}
    if not tied and not any(_ties(model_type, values, name) for name in classes):
        return  # the same once more
    rng = Random(model_type)
    for saved in classes:
        whole = written(expected[saved])
        for loaded in classes:
            case = "self" if saved == loaded else "cross"
            checkpoints = [(case if tied else f"{case}, untied", whole)]
            if tied:
                checkpoints += _laid_out(case, saved, values, whole)
                ways = list(spoilt(whole, expected[saved]))
                if saved == loaded:
                    checkpoints += [*ways, *_ignored(loaded, whole, expected[saved])]
                else:
                    checkpoints += [(f"cross, {way}", after) for way, after in _some(rng, ways, 1)]
            for label, stored in checkpoints:
                size = expected[loaded].parameters
                yield Load("closed form", model_type, saved, loaded, label, values, stored, size)


def _ties(model_type: str, values: dict[str, Any], name: str) -> bool:
    tied = expectation(model_type, values | {"tie_word_embeddings": True}, name)
    return any(tensor.role is Role.TIED for tensor in tied.tensors)


def _laid_out(
    case: str, name: str, values: dict[str, Any], whole: Stored
) -> list[tuple[str, Stored]]:
    return [(f"{case}, {layout}", stored) for layout, stored in layouts(name, values, whole)]


def _ignored(name: str, whole: Stored, expected: Expectation) -> Iterator[tuple[str, Stored]]:
    """With every name that the class itself says loading should be silent about."""
    patterns = unexpected_patterns(name)
    bare = [re.sub(r"[\^$\\]|\.\*", "", each.replace(r"\d+", "0")) for each in patterns]
    heads = dict.fromkeys(("", f"{expected.prefix}." if expected.prefix else "", "other."))
    names = (f"{head}{one}{tail}" for one in bare for head in heads for tail in ("", ".weight"))
    if bare:
        yield IGNORED, whole | dict.fromkeys(names, (2,))


def _some(rng: Random, ways: list[tuple[str, Stored]], count: int) -> list[tuple[str, Stored]]:
    return rng.sample(ways, min(count, len(ways)))


# --- without a closed form: some classes of every type, some ways ------------------------------


def of_library(model_type: str, number: int, *, generated: bool = False) -> Iterator[Load]:
    """Loads of one reduced config; LookupError, with the reason, where none can be built."""
    from parity_cases.oracle_configs import reduced  # noqa: PLC0415 - imports torch

    rng = Random(f"{model_type} {number}")
    source, classes, spoilings = "oracle", CLASSES, SPOILINGS
    only: list[str] = []
    if generated:
        source, classes, spoilings = "generated form", LEARNED, LEARNED
        learned = sorted(forms.siblings(model_type))
        only = rng.sample(learned, min(classes, len(learned)))
    values, built = reduced(model_type, rng, only)
    chosen = rng.sample(sorted(built), min(classes, len(built)))
    for saved in chosen:
        whole = written(built[saved])
        ways = list(spoilt(whole, built[saved]))
        checkpoints = [("self", whole), *_laid_out("self", saved, values, whole)]
        checkpoints += _some(rng, ways, spoilings)
        for case, stored in checkpoints:
            size = built[saved].parameters
            yield Load(source, model_type, saved, saved, case, values, stored, size)
        others = [name for name in chosen if name != saved]  # of which the oracle has answers
        for loaded in rng.sample(others, min(1, len(others))):
            checkpoints = [("cross", whole), *_laid_out("cross", saved, values, whole)]
            checkpoints += [(f"cross, {way}", after) for way, after in _some(rng, ways, 1)]
            for case, stored in _some(rng, checkpoints, 2):
                size = built[loaded].parameters
                yield Load(source, model_type, saved, loaded, case, values, stored, size)


# --- many layers, many experts -----------------------------------------------------------------


def of_large(model_type: str) -> Iterator[Load]:
    """A model of its published size, whole and spoilt in the ways that a size could matter for."""
    name, values = large.MODELS[model_type]
    config = {"model_type": model_type, **values}
    if catalogue.siblings(model_type):
        source, expected = "closed form", catalogue.expect(config_of(**config), name)
    else:
        from auditor.oracle.build import build_expectation  # noqa: PLC0415 - imports torch

        source, expected = "oracle", build_expectation(config, name)
    whole = written(expected)
    ways = {way: after for way, after in spoilt(whole, expected) if way in large.WAYS}
    for case, stored in {"self": whole, **ways}.items():
        size = expected.parameters
        yield Load(source, model_type, name, name, f"large, {case}", config, stored, size)


def unlike(loads: Iterable[Load]) -> Iterator[Load]:
    """Without those that are the same checkpoint once more for the same class."""
    seen: set[tuple[object, ...]] = set()
    for load in loads:
        key = (load.saved, load.loaded, repr(load.values), tuple(load.stored.items()))
        if key not in seen:
            seen.add(key)
            yield load
