"""Generated forms: the tensors of classes without a closed form by hand, from data.

`make catalogue` learns a form by probing what transformers builds, and ships it only if it was
right for random configs that learning did not draw. This module is a source of expectations, as
`catalogue` is. It reads the data of a model type when that type is requested.
"""

import json
import re
import zlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path
from types import MappingProxyType
from typing import Any

import msgspec
from msgspec import Struct, convert
from msgspec.structs import replace

from auditor.analytic.blocks import Module
from auditor.analytic.config import Config
from auditor.analytic.expectation import Expectation
from auditor.analytic.family import Family
from auditor.analytic.generated.expressions import Outside
from auditor.analytic.generated.form import Form
from auditor.analytic.generated.tree import form_tree, memory_tree
from auditor.analytic.listing import inventory
from auditor.analytic.loading import Loading, Memory
from auditor.analytic.tree_expectation import Sibling, tree_expectation, tree_sibling
from auditor.bounded.json_text import examined
from auditor.errors import CheckpointError, Reason, SourceError
from auditor.messages import quoted

unknown = "neither a closed form nor a generated form is known for"
_FILES = Path(__file__).parents[2] / "data" / "generated"
_MODEL_TYPE = re.compile(r"[\w-]{1,64}(\.\w{1,64})?", re.ASCII)
_MOST_BYTES = 2**24  # of one model type, decompressed


class _Index(Struct, frozen=True):
    libraries: tuple[str, ...]
    types: Mapping[str, tuple[str, ...]]  # model type, or "diffusers.Class" -> its classes
    bases: Mapping[str, str]
    autos: Mapping[str, Mapping[str, str]]
    caches: tuple[str, ...] = ()  # classes whose caches follow from their tensors: cache_rule


@lru_cache(maxsize=1)
def index() -> _Index:
    """Return the list of all generated forms."""
    return msgspec.json.decode((_FILES / "index.json").read_bytes(), type=examined(_Index))


@lru_cache(maxsize=8)
def forms(model_type: str) -> Mapping[str, Form]:
    """Return the forms of a model type by class."""
    if not _MODEL_TYPE.fullmatch(model_type) or model_type not in index().types:
        return MappingProxyType({})
    return decoded((_FILES / f"{model_type}.z").read_bytes())


def decoded(chunk: bytes) -> Mapping[str, Form]:
    """Decode a chunk; raise CheckpointError if it is broken or too large."""
    try:
        text = zlib.decompressobj().decompress(chunk, _MOST_BYTES)
        if b"Infinity" in text:  # of time_step_limit; msgspec's decoder refuses it
            return convert(json.loads(text), examined(dict[str, Form]))
        return msgspec.json.decode(text, type=examined(dict[str, Form]))
    except (zlib.error, ValueError, RecursionError, msgspec.MsgspecError) as error:
        raise CheckpointError(f"a chunk of generated forms cannot be read: {error}") from None


def types(name: str) -> tuple[str, ...]:
    return tuple(each for each, names in index().types.items() if name in names)


def siblings(model_type: str) -> tuple[str, ...]:
    return index().types.get(model_type, ())


def base_class(model_type: str) -> str:
    return index().bases[model_type]


def family(model_type: str) -> Family:
    """Return the facts that the forms of a model type state of its config."""
    known = forms(model_type)
    form = known.get(base_class(model_type)) or next(iter(known.values()))
    own = {key: default for key, default in form.defaults.items() if "." not in key}
    base, older = base_class(model_type), form.aliases
    return Family(model_type=model_type, prefix=form.prefix, base=base, own=own, older=older)


def auto_class(name: str, model_type: str) -> str | None:
    return index().autos.get(name, {}).get(model_type)


def current(name: str) -> str:
    return name


def current_type(model_type: str) -> str:
    return model_type


def inside(model_type: str) -> Mapping[str, str]:
    """Return the nested configs of a model type: key -> its model type."""
    found: dict[str, str] = {}
    for form in forms(model_type).values():
        found.update((key, kind) for key, kind in form.part_types.items() if "." not in key)
    return found


def expect(config: Config, target: str) -> Expectation:
    """Return every tensor that the config implies; raise SourceError outside the form's guards."""
    return expect_form(config, form_of(config, target))


def expect_form(config: Config, form: Form) -> Expectation:
    """Return every tensor that a form implies; raise SourceError outside its guards."""
    with covered(form.target):
        return tree_expectation(
            form_tree(form, config.values),
            form.target,
            model_type=form.model_type,
            prefix=form.prefix,
            by="generated",
            library=form.source,
            loading=loading_of_form(form, config.values),
        )


def sibling(config: Config, target: str) -> Sibling:
    """Return a class with a lookup of its tensors, except tensors whose row is outside."""
    form = form_of(config, target)
    with covered(target):
        tree = form_tree(form, config.values, known_only=True)
        return tree_sibling(tree, target, form.prefix, loading_of_form(form, config.values))


def block_tree(config: Config, target: str) -> Module:
    """Return the tree of blocks of a class; raise SourceError outside the form's guards."""
    form = form_of(config, target)
    with covered(target):
        return form_tree(form, config.values)


def own_values(form: Form, config: Config) -> Mapping[str, Any]:
    """Return a config's values under the form's model type; a related type may have the class.

    An unchecked config, such as that of a GGUF file, may have keys that the class does not read:
    they are left out. Synonyms take precedence, as in transformers.
    """
    values: Mapping[str, Any] = config.values
    twice = {key for alias, key in form.aliases.items() if alias in values and key in values}
    if twice:
        values = {key: value for key, value in values.items() if key not in twice}
    if not config.checked:
        values = {key: value for key, value in values.items() if form.has(key)}
    stated = values.get("model_type")
    return (
        values if stated in (None, form.model_type) else {**values, "model_type": form.model_type}
    )


def loading_of_form(form: Form, values: Mapping[str, Any]) -> Loading:
    """Return the loading rules of a class, and its tensors in memory if the rules do not give them.

    Raise Outside for values that the form does not cover.
    """
    loading = convert(form.loading(values), examined(Loading))
    tree = memory_tree(form, values)
    tensors = inventory(tree, {}).tensors if tree else ()
    if not tensors:
        return loading
    ties = tuple((one.name, one.tied_to) for one in tensors if one.tied_to)
    shapes = {one.name: one.shape for one in tensors}
    return replace(loading, memory=Memory(shapes, ties, unset=None))


def form_of(config: Config, target: str) -> Form:
    having = types(target)
    model_type = config.model_type if config.model_type in having else next(iter(having), "")
    form = forms(model_type).get(target)
    if form is None:
        raise SourceError(Reason.UNKNOWN_ARCHITECTURE, f"{unknown} {quoted(target)}")
    if config.arguments:
        detail = f"the generated form of {target} covers no arguments beside the config"
        raise SourceError(Reason.UNKNOWN_ARCHITECTURE, detail)
    return form


@contextmanager
def covered(target: str) -> Iterator[None]:
    """Raise SourceError with the key that lies outside the form's guards."""
    try:
        yield
    except Outside as outside:
        only = f" {outside.only} only" if outside.only else " other values only"
        detail = f"{target} has a generated form for {quoted(outside.key)}{only}"
        raise SourceError(Reason.UNKNOWN_ARCHITECTURE, detail) from None
