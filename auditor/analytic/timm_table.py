"""The tensors of timm's architectures, from a table that `tools/rebuild_timm.py` writes.

timm builds a network from `architecture` and `num_classes` of config.json, and from the number of
channels in `input_size` of its `pretrained_cfg`, or the complete `input_size` if it is fixed.
"""

import json
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple
from zipfile import ZipFile

from auditor.analytic.blocks import Block, Buffer, Legacy, Module, Param
from auditor.analytic.config import Config
from auditor.analytic.dims import Dim, dim
from auditor.analytic.expectation import Expectation, Symbol
from auditor.analytic.loading import PLAIN, Loading
from auditor.analytic.tree_expectation import tree_expectation
from auditor.errors import CheckpointError, Reason, SourceError
from auditor.messages import described, quoted

_DATA = Path(__file__).parents[1] / "data" / "timm.zip"

_CHANNELS = 3  # of all forms that cannot have others
_LEAVES = {"p": Param, "b": Buffer, "l": Legacy}

# What timm's PretrainedCfg has by default.
_DEFAULTS: Mapping[str, object] = MappingProxyType(
    {"num_classes": 1000, "input_size": [3, 224, 224], "fixed_input_size": False}
)


class _Form(NamedTuple):
    """The tensors of one architecture, for one input size if the size is fixed."""

    size: list[int] | None  # None: of any size
    # c: of three channels only; 0: with a head only; s: of the same tensors if no size is fixed
    letters: str
    root: int  # the node of the model


# The classes of transformers around a network of timm: whether they have its head.
WRAPPER = "timm_wrapper"
_HEADS = MappingProxyType({"TimmWrapperModel": False, "TimmWrapperForImageClassification": True})


def expect_wrapped(config: Config, target: str) -> Expectation:
    """Return the expectation of a class of timm_wrapper, which builds timm's default network.

    Raise the errors of `expect_timm`.
    """
    architecture, classes = config.values.get("architecture"), config.values.get("num_classes")
    if target not in _HEADS or not isinstance(architecture, str) or type(classes) is not int:
        raise _unknown(f"{quoted(target)} of {WRAPPER} without architecture and num_classes")
    name = architecture.partition(".")[0]  # what follows is the tag of pretrained weights
    arguments = {"model_args": config.values.get("model_args")}
    inner = Config(values={"num_classes": classes if _HEADS[target] else 0, **arguments})
    return _expectation(inner, name, target)


def expect_timm(config: Config, architecture: str) -> Expectation:
    """Return the expectation of an architecture as timm saves it.

    Raise SourceError for an architecture or a value that the table lacks, CheckpointError for a
    value with which timm cannot build a network.
    """
    return _expectation(config, architecture, None)


def _expectation(config: Config, architecture: str, wrapper: str | None) -> Expectation:
    """Return the expectation of an architecture, inside transformers' class `wrapper` if given."""
    keys, tree = _tree(config, architecture, fixed=wrapper is not None)
    if wrapper:
        tree = Module((("timm_model", tree),))
    return tree_expectation(
        tree,
        wrapper or architecture,
        model_type=WRAPPER if wrapper else "timm",
        prefix="timm_model" if wrapper else "",
        library=_member("index")["library"],
        loading=PLAIN if wrapper else Loading(legacy=()),
        defaults=("num_classes",) if keys.classes.default else (),
    )


def network(config: Config, architecture: str) -> Module:
    """Return the network of an architecture as timm saves it; raise the errors of `expect_timm`."""
    return _tree(config, architecture, fixed=False)[1]


def default_network(architecture: str, classes: int) -> Module:
    """Return the network that timm builds without a config; raise the errors of `expect_timm`."""
    return _tree(Config(values={"num_classes": classes}), architecture, fixed=True)[1]


def _tree(config: Config, architecture: str, *, fixed: bool) -> tuple["_Keys", Module]:
    """Return the keys and the network; `fixed` if it has timm's default size for images."""
    index = _member("index")
    family = index["families"].get(architecture)
    if family is None:
        raise _unknown(f"{quoted(architecture)}, an architecture of timm")
    if config.values.get("model_args"):
        raise _unknown(f"{quoted(architecture)} of timm with model_args")
    keys, table = _Keys.of(config), _member(family)
    forms = [_Form(*form) for form in table["forms"][architecture]]
    if fixed:  # pretrained_cfg is not read: timm's own default is the first form
        keys = keys._replace(size=forms[0].size)
    outside = [keys.outside(form) for form in forms]
    if None not in outside:
        raise _unknown(f"{quoted(architecture)} of timm with {outside[0]}")
    nodes = _Nodes(table["nodes"], keys)
    tree = nodes.block(forms[outside.index(None)].root)
    if not isinstance(tree, Module):
        raise CheckpointError(f"{architecture} with num_classes 0 has no tensors")
    return keys, tree


@lru_cache(maxsize=4)
def _member(name: str) -> Any:
    with ZipFile(_DATA) as members:
        return json.loads(members.read(f"{name}.json"))


def _unknown(what: str) -> SourceError:
    return SourceError(Reason.UNKNOWN_ARCHITECTURE, f"no closed form is known for {what}")


# --- the keys -------------------------------------------------------------------------------------


class _Keys(NamedTuple):
    """The values of a config from which timm builds a network."""

    classes: Symbol
    channels: int
    global_pool: object  # of pretrained_cfg, where current versions of timm refuse it
    size: object  # None: not fixed
    path: str  # of pretrained_cfg, with its dot

    @classmethod
    def of(cls, config: Config) -> "_Keys":
        values = config.values
        source = values.get("pretrained_cfg", values)  # older configs are one dict
        path = "pretrained_cfg." if "pretrained_cfg" in values else ""
        if not isinstance(source, Mapping):
            raise CheckpointError(f"pretrained_cfg is {described(source)}, expected an object")
        given = {**_DEFAULTS, **source}
        classes = values.get("num_classes", given["num_classes"])
        if type(classes) is not int or classes < 0:
            raise CheckpointError(f"num_classes is {described(classes)}, expected 0 or more")
        size = given["input_size"]
        if not (isinstance(size, list) and len(size) == len("CHW")) or any(
            type(axis) is not int or axis < 1 for axis in size
        ):
            raise CheckpointError(f"{path}input_size is {described(size)}, expected three sizes")
        is_default = "num_classes" not in values and "num_classes" not in source
        return cls(
            Symbol("C", "num_classes", classes, is_default),
            size[0],
            given.get("global_pool") if path else None,
            size[1:] if given["fixed_input_size"] else None,
            path,
        )

    def outside(self, form: _Form) -> str | None:
        """Return a key and its value that the form does not cover; None if it covers all values."""
        if self.global_pool is not None:
            return f"{self.path}global_pool {described(self.global_pool)}"
        if self.size != form.size and not (self.size is None and "s" in form.letters):
            size = "that is not fixed" if self.size is None else described(self.size)
            return f"{self.path}input_size {size}"
        if "c" in form.letters and self.channels != _CHANNELS:
            return f"{self.path}input_size of {self.channels} channels"
        if "0" in form.letters and self.classes.value == 0:
            return "num_classes 0"
        return None


# --- the tree -------------------------------------------------------------------------------------


class _Nodes(NamedTuple):
    """The nodes of a family: a list is a tensor, and a dict is a module.

    A module maps the name of each child to the number of places from the child's node to its own.
    """

    listed: list[list[int | str] | dict[str, int]]
    keys: _Keys

    def block(self, place: int) -> Block | None:
        """Return a node as a block; None if a model without a head lacks it."""
        match self.listed[place]:
            case [str(role), *axes]:
                is_absent = role.isupper() and self.keys.classes.value == 0
                return None if is_absent else _LEAVES[role.lower()](tuple(map(self._axis, axes)))
            case node:
                return self._module(node, place)

    def _module(self, node: Any, place: int) -> Module | None:
        """Return the module of a node, whose keys may be ranges like 0-5; None if it is empty."""
        children: list[tuple[str, Block]] = []
        for key, before in node.items():
            if (block := self.block(place - before)) is not None:
                first, _, last = key.partition("-")
                names = map(str, range(int(first), int(last) + 1)) if last else (key,)
                children += ((name, block) for name in names)
        return Module(tuple(children)) if children else None

    def _axis(self, axis: int | str) -> Dim | int:
        """Return an axis: a number, or a multiple of the classes ("1n") or channels ("3c")."""
        if isinstance(axis, int):
            return axis
        times = int(axis[:-1])
        return dim(self.keys.classes) * times if axis[-1] == "n" else self.keys.channels * times
