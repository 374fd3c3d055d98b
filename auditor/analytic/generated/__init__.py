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

import msgspec
from msgspec import Struct, convert
from msgspec.structs import replace

from auditor.analytic.catalogue import Sibling
from auditor.analytic.config import Config
from auditor.analytic.expectation import Expectation, summed_expectation
from auditor.analytic.generated.expressions import Outside
from auditor.analytic.generated.form import Form, RowLookup
from auditor.analytic.generated.formulas import Formulas, formulas_of
from auditor.analytic.loading import Loading
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
    form = _form(config, target)
    with _covered(target):
        tensors, memory = form.tensors(config.values), form.memory(config.values)
        loading = convert(form.loading(config.values), examined(Loading))
    return summed_expectation(
        target,
        model_type=form.model_type,
        prefix=form.prefix,
        tensors=tensors,
        loading=replace(loading, memory=memory),
        library=f"{form.library}, held on {form.held} configs",
        by="generated",
    )


def sibling(config: Config, target: str) -> Sibling:
    """Return a class with a lookup of its tensors; rows that no name belongs to are not listed."""
    form = _form(config, target)
    with _covered(target):
        loading = convert(form.loading(config.values), examined(Loading))
        if not loading.renames:
            names = RowLookup(form.rows, form.values(config.values))
            return Sibling(target, form.prefix, names, loading)
    expectation = expect(config, target)
    return Sibling(target, expectation.prefix, expectation.renamed, expectation.loading)


def formulas(config: Config, target: str) -> Formulas:
    """Return the lengths of the tensors as Dims; raise SourceError outside the form's guards."""
    form = _form(config, target)
    with _covered(target):
        return formulas_of(form, config.values)


def _form(config: Config, target: str) -> Form:
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
def _covered(target: str) -> Iterator[None]:
    """Raise SourceError with the key that lies outside the form's guards."""
    try:
        yield
    except Outside as outside:
        only = f" {outside.only} only" if outside.only else " other values only"
        detail = f"{target} has a generated form for {quoted(outside.key)}{only}"
        raise SourceError(Reason.UNKNOWN_ARCHITECTURE, detail) from None
