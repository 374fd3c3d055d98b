"""Families whose classes are generated forms: data answers as builders by hand do."""

from collections.abc import Iterator, Mapping
from contextlib import suppress
from functools import partial
from itertools import chain
from types import MappingProxyType
from typing import Any

from msgspec import convert
from msgspec.structs import replace

from auditor.analytic import generated
from auditor.analytic.blocks import Module
from auditor.analytic.catalogue import Builder, Family, architecture
from auditor.analytic.config import Config
from auditor.analytic.config_classes import CompletedConfig, derived_defaults, of_model_type
from auditor.analytic.family import LoadingFacts, loads
from auditor.analytic.generated.expressions import Outside, keys_of
from auditor.analytic.generated.form import Form, Row, derived
from auditor.analytic.generated.tree import form_tree
from auditor.analytic.loading import Loading
from auditor.bounded.json_text import examined

# Types whose classes transformers adopted, with their names, from code in model repositories.
_TAKEN_OVER = "falcon mpt phi phi3 stablelm"
# Letters of keys that would have none, by model type.
_LETTERS = MappingProxyType({"distilbert": {"hidden_dim": "F"}})
_POOLER = "pooler."


def register(model_type: str) -> None:
    """Register the classes of a model type with the facts that their forms state."""
    known, base = generated.forms(model_type), generated.base_class(model_type)
    forms = {name: form for name, form in known.items() if form.model_type == model_type}
    form, config_class = forms[base], of_model_type(model_type)
    fields = config_class.fields if config_class else {}
    keys = sorted(key for key in _acting(form) if "." not in key)
    family = Family(
        model_type=model_type,
        prefix=form.prefix,
        base=base,
        keys=" ".join(keys),
        own={key: form.defaults[key] for key in keys if key not in fields},
        older=form.aliases,
        taken_over=model_type in _TAKEN_OVER.split(),
        letters=_LETTERS.get(model_type, {}),
        forms=forms,
    )
    for name in (one for one in generated.siblings(model_type) if one in forms):
        has_prefix = forms[name].prefix == family.prefix
        own = family if has_prefix else replace(family, prefix=forms[name].prefix)
        architecture(name, own)(_builder(forms[name], family.letters))
    loads(model_type, _facts(form))
    if config_class:
        derived_defaults(config_class.name)(partial(_derive, form))


def _facts(form: Form) -> LoadingFacts:
    """Return the loading facts of a type's base model, for models that contain it."""
    rules = convert(form.loadings[-1][0], examined(Loading))
    return LoadingFacts(
        rules=tuple(one._replace(prefixes=("",)) for one in (*rules.renames, *rules.converters)),
        silent=rules.silent,
        rotary=any("inv_freq" in pattern for pattern in rules.buffers),
        positions=any("position_ids" in pattern for pattern in rules.buffers),
    )


def _builder(form: Form, letters: Mapping[str, str]) -> Builder:
    """Return a builder of the form's tree; that of a base model can leave the pooler out."""
    has_pooler = any(row.template.startswith(_POOLER) for row in form.rows)
    acting = _acting(form)

    def build(c: Config, /) -> Module:
        return tree(c, None)

    def build_with_option(c: Config, /, *, pooler: bool = True) -> Module:
        return tree(c, None if pooler else _POOLER)

    def tree(c: Config, left_out: str | None) -> Module:
        values = generated.own_values(form, c)
        with generated.covered(form.target):
            stated = frozenset(form.read(values)[1])
            made = form_tree(form, values, path=c.path, left_out=left_out, letters=letters)
        c.assume(acting - stated)
        return made

    return build_with_option if has_pooler else build


def _acting(form: Form) -> frozenset[str]:
    """Return the keys that the tensors of a class depend on."""
    keys = frozenset(chain.from_iterable(keys_of(["+", *_expressions(row)]) for row in form.rows))
    return keys & form.defaults.keys()


def _expressions(row: Row) -> Iterator[Any]:
    yield from (row.present, *row.shape, *chain(*row.levels), *(test for _, test in row.roles))


def _derive(form: Form, config: CompletedConfig, others: dict[str, Any]) -> None:
    """Set the keys with another name, and those that the config class derives from others."""
    for alias, key in form.aliases.items():
        if alias not in config.kind.attribute_map and others.get(alias) is not None:
            config.set(key, others[alias])
    values = {key: config.get(key) for key in form.defaults}
    for key, length, item in form.derived:
        if config.get(key) is None and (length, item) != (None, None):
            with suppress(Outside):
                config.set(key, derived(key, values, length, item))
