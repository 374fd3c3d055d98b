"""Tensors of the base that an adapter stores: complete modules, biases, embeddings and rows."""

import re
from collections.abc import Collection, Iterable, Iterator
from math import prod
from typing import NamedTuple

from auditor.analytic.adapters.base import AdaptedModel, AdaptedModule
from auditor.analytic.adapters.settings import AdapterSettings, unchecked_adapter
from auditor.analytic.blocks import Layer
from auditor.analytic.expectation import ExpectedTensor, Role
from auditor.errors import CheckpointError
from auditor.messages import described, quoted
from auditor.names.parts import modules_above

IN_BASE = "base_model.model."  # the prefix of layers that peft adds inside the base
OUTSIDE_BASE = "base_model."  # the prefix of tensors outside the base, such as prompts

# Other names for the trained copy of a module; peft also stores its bias under them.
_COPIES = ("modules_to_save", "modules_to_save.default")


_WRAPPERS = re.compile(r"(?:\.token_adapter)?\.base_layer\.|\.original_module\.")
_ROWS = "token_adapter.trainable_tokens_delta"


def expected_tensor(name: str, *shape: int, role: Role = Role.PARAMETER) -> ExpectedTensor:
    return ExpectedTensor(name, shape, prod(shape), role)


def saved_paths(settings: AdapterSettings, base: AdaptedModel) -> tuple[str, ...]:
    """Return the paths of the modules that modules_to_save chooses by the ends of their names.

    A module inside another of these modules is stored with it, and is left out here.
    """
    ends = settings.saved()
    matching = [path for path in base.paths if ends and path.endswith(ends)]
    outer = frozenset(matching)
    return tuple(path for path in matching if outer.isdisjoint(modules_above(path)))


def tensors_of_saved_modules(
    base: AdaptedModel, paths: Iterable[str], prefix: str
) -> Iterator[ExpectedTensor]:
    """Yield all tensors of the modules at `paths`; tied tensors are stored separately."""
    for path in paths:
        for part in base.under(path):
            for last, tensor in part.tensors.items():
                role = Role.PARAMETER if tensor.role is Role.TIED else tensor.role
                yield ExpectedTensor(
                    f"{prefix}{part.path}.{last}", tensor.shape, tensor.elements, role
                )


def biases(
    settings: AdapterSettings, base: AdaptedModel, targeted: Collection[str], saved: Iterable[str]
) -> Iterator[ExpectedTensor]:
    """Yield the base's biases that the adapter stores: all, or those of adapted modules."""
    which = settings.config.text("bias")
    if which == "none":
        return
    if which != "all" and not which.endswith("_only"):
        raise CheckpointError(f"bias is {described(which)}, expected none, all or lora_only")
    saved_above = {part.path: path for path in saved for part in base.under(path)}
    for path, part in base.parts.items():
        if part.bias is None or (which != "all" and path not in targeted):
            continue
        shape = part.bias.shape
        if not part.bias.role.learned:  # GPT-2's mask, which older versions stored, is named bias
            yield expected_tensor(f"{IN_BASE}{path}.bias", *shape, role=Role.LEGACY)
        elif path in saved_above:
            suffix = f"{path.removeprefix(saved_above[path])}.bias"
            for copy in _COPIES:
                yield expected_tensor(
                    f"{IN_BASE}{saved_above[path]}.{copy}{suffix}", *shape, role=Role.EXTRA
                )
        elif path in targeted:
            yield expected_tensor(f"{IN_BASE}{path}.base_layer.bias", *shape)
        else:
            yield expected_tensor(f"{IN_BASE}{path}.bias", *shape)


def replaced_names(base: AdaptedModel, prefix: str, names: Iterable[str]) -> tuple[str, ...]:
    """Return the names of base tensors that loading replaces by tensors of the adapter."""
    of_base = {f"{part.path}.{last}" for part in base.parts.values() for last in part.tensors}
    bare = (_WRAPPERS.sub(".", name.removeprefix(prefix)) for name in names)
    return tuple(dict.fromkeys(name for name in bare if name in of_base))


class Wrapped(NamedTuple):
    """The modules of a base that peft wraps; a wrapper changes the names of its tensors."""

    adapted: frozenset[str] = frozenset()
    saved: tuple[str, ...] = ()  # paths of completely stored modules
    with_rows: frozenset[str] = frozenset()  # paths of modules with some trained rows

    def names_inside(self, base: AdaptedModel, prefix: str) -> Iterator[tuple[str, ExpectedTensor]]:
        """Yield each tensor of the base with its name in the wrapped model."""
        inside = {part.path: path for path in self.saved for part in base.under(path)}
        for path, part in base.parts.items():
            if outer := inside.get(path):
                path = f"{outer}.original_module{path.removeprefix(outer)}"  # noqa: PLW2901
            elif path in self.with_rows:
                path = f"{path}.token_adapter.base_layer"  # noqa: PLW2901
            elif path in self.adapted:
                path = f"{path}.base_layer"  # noqa: PLW2901
            for last, tensor in part.tensors.items():
                yield f"{prefix}{path}.{last}", tensor


def tensors_over_base(
    base: AdaptedModel, wrapped: Wrapped, prefix: str, stored: Collection[str]
) -> Iterator[ExpectedTensor]:
    """Yield the stored tensors that peft copies over the base's, whatever the settings are.

    peft stores the word embeddings if they have an adapter or if the user added words, and loads
    every tensor whose name is in the wrapped model.
    """
    for name, tensor in wrapped.names_inside(base, prefix) if stored else ():
        if name in stored:
            role = Role.PARAMETER if tensor.role.learned else Role.LEGACY
            yield expected_tensor(name, *tensor.shape, role=role)


def token_rows(
    settings: AdapterSettings, base: AdaptedModel, stored: Collection[str]
) -> Iterator[ExpectedTensor]:
    """Yield the embedding rows of chosen tokens, if only these rows are trained."""
    if not settings.config.present("trainable_token_indices"):
        return
    for path, part, rows in _chosen_words(settings, base):
        size = part.size()
        if size is None:
            raise unchecked_adapter(
                f"trainable_token_indices chooses {quoted(path)}, which has no words"
            )
        if f"{IN_BASE}{path}.token_adapter.base_layer.weight" not in stored:  # else compared
            require_rows("trainable_token_indices", rows, part)
        count, width = len(rows), size.outputs if part.layer is Layer.EMBEDDING else size.inputs
        yield expected_tensor(f"{IN_BASE}{path}.{_ROWS}", count, width)
        for tied in base.tied_to(part):  # peft may store the rows again
            yield expected_tensor(f"{IN_BASE}{tied.path}.{_ROWS}", count, width, role=Role.EXTRA)


def require_rows(key: str, rows: Iterable[int], part: AdaptedModule) -> None:
    """Raise CheckpointError if the base lacks some of the rows, e.g. if it was not resized."""
    last, count = max(rows, default=-1), part.tensors["weight"].shape[0]
    if last >= count:
        raise CheckpointError(
            f"{key} has row {last:,}, {quoted(part.path)} of the base has {count:,} rows; resize "
            f"the base to {last + 1:,} rows or more first"
        )


def paths_with_rows(settings: AdapterSettings, base: AdaptedModel) -> frozenset[str]:
    """Return the paths of the modules with trained rows and of the modules tied to them."""
    if not settings.config.present("trainable_token_indices"):
        return frozenset()
    parts = [part for _, part, _ in _chosen_words(settings, base)]
    return frozenset(module.path for part in parts for module in (part, *base.tied_to(part)))


def _chosen_words(
    settings: AdapterSettings, base: AdaptedModel
) -> Iterator[tuple[str, AdaptedModule, tuple[int, ...]]]:
    """Yield name, module and rows of each trained embedding, without tied copies."""
    config = settings.config
    if isinstance(config.values.get("trainable_token_indices"), dict):
        nested = config.nested("trainable_token_indices")
        rows_by_end = {key: tuple(nested.integers(key)) for key in nested.values}
    else:
        tables = (part for part in base.embeddings if part.layer is Layer.EMBEDDING)
        first = next(tables, None)
        if first is None:
            raise unchecked_adapter(
                "trainable_token_indices: the word embedding of the base is not known"
            )
        rows_by_end = {first.last: tuple(config.integers("trainable_token_indices"))}
    for key, rows in rows_by_end.items():
        matching = [path for path in base.parts if path.endswith(key)]
        if not matching or not key:
            raise CheckpointError(f"trainable_token_indices names {quoted(key)}: no such module")
        for path in matching:
            weight = base.parts[path].tensors.get("weight")
            if weight is not None and weight.role is not Role.TIED:
                yield path, base.parts[path], rows
