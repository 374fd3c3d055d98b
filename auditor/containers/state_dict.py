"""The state dict in a pickled value: which part of the value it is, and its tensors by name."""

from collections.abc import Collection, Iterator, Mapping
from itertools import islice

from msgspec import Struct

from auditor.bounded.pickle_names import Call, Global, PickledDict, PickledSet
from auditor.containers.torch_tensors import TensorView, Unreadable, is_text, tensor_view
from auditor.messages import named, quoted

# Keys under which training scripts keep the model's state dict, the likeliest first: Lightning
# and most others, then torch's own examples, then DeepSpeed, then restoration models (EMA first).
WRAPPERS = (
    "state_dict",
    "model_state_dict",
    "model",
    "module",
    "net",
    "params_ema",
    "params",
    "weights",
)
LIGHTNING = "pytorch-lightning_version"
_DICTS = frozenset(f"collections.{name}" for name in ("OrderedDict", "defaultdict", "Counter"))

# The most values: a pickle's memo lets few bytes stand for any number of them. The largest state
# dict has 16,000 names (pickle_machine), which are visited three times.
_MOST_VALUES = 120_000
_MOST_LETTERS = 4_000_000  # characters of all dotted names
_DEEPEST = 64  # levels of nested containers
_DEEPEST_WRAPPERS = 4
_SHOWN = 5


class StateDict(Struct, frozen=True, kw_only=True):
    """The tensors of a state dict, in its order."""

    tensors: Mapping[str, TensorView]
    unreadable: Mapping[str, str]  # name -> the reason, which begins with a verb
    note: str | None = None  # a sentence about its place in the value, if it is only a part
    is_of_lightning: bool = False  # whether Lightning saved it
    fault: str | None = None  # why the walk ended early; begins with a verb


def state_dict(value: object, *, opened: bool = True) -> StateDict:
    """Return the model's tensors in a pickled value: all of it, or the part under a known key.

    `opened` is whether the loader looks under such a key. If it does not, each name begins with the
    key in parentheses, so that it matches no expected name.
    """
    walk = _Walk(opened=opened)
    tensors: dict[str, TensorView] = {}
    unreadable: dict[str, str] = {}
    note, fault = None, None
    siblings: Mapping[str, object] = {}
    try:
        value, path, siblings = _unwrap(walk, value)
        notes = [_note(path, siblings, opened=opened)] if path else []
        if isinstance(value, Call) and (name := _module_class(value)):
            notes.append(f"it is a pickled module ({named(name)}), not a state dict")
        note = "; ".join(notes) or None
        prefix = "" if opened else ".".join(f"({key})" for key in path)
        for name, view in walk.unique_tensors(value, prefix):
            if isinstance(view, TensorView):
                tensors[name] = view
            else:
                unreadable[name] = view.reason
    except _SpentError as error:
        fault = str(error)
    is_of_lightning = LIGHTNING in siblings
    if is_of_lightning and not unreadable and (attribute := attribute_of(tensors)):
        tensors = {name.removeprefix(attribute): view for name, view in tensors.items()}
        note = f"{note}; each name begins with {quoted(attribute)}, which is left out"
    return StateDict(
        tensors=tensors,
        unreadable=unreadable,
        note=note,
        is_of_lightning=is_of_lightning,
        fault=fault,
    )


def attribute_of(names: Collection[str]) -> str:
    """Return the attribute of a LightningModule that has the model, such as "model."; else ""."""
    starts = {name.partition(".")[0] for name in names if "." in name}
    is_one = len(starts) == 1 and all("." in name for name in names)
    return f"{starts.pop()}." if is_one else ""


def is_dict(value: object) -> bool:
    """Return whether a value is a dict, of tensors or not."""
    return isinstance(value, PickledDict) or (isinstance(value, Call) and _makes_dict(value))


def _makes_dict(call: Call) -> bool:
    return isinstance(call.callee, Global) and call.callee.path in _DICTS


def _module_class(call: Call) -> str | None:
    """Return the class of a pickled torch.nn.Module; None for another object."""
    if isinstance(call.state, PickledDict) and isinstance(call.callee, Global):
        attributes = {key: value for key, value in call.state.pairs if isinstance(key, str)}
        if is_dict(attributes.get("_parameters")) and is_dict(attributes.get("_modules")):
            return call.callee.path
    return None


def _unwrap(walk: "_Walk", value: object) -> tuple[object, list[str], Mapping[str, object]]:
    """Return the state dict inside a value, the keys that lead to it, and its siblings."""
    path: list[str] = []
    siblings: dict[str, object] = {}
    for _ in range(_DEEPEST_WRAPPERS):
        children = walk.children(value) if is_dict(value) else {}
        if any(tensor_view(child) is not None for child in children.values()):
            break
        keys = (key for key in WRAPPERS if key in children)
        wrapper = next((key for key in keys if walk.count(children[key], 1)), None)
        if wrapper is None:
            break
        siblings = {key: child for key, child in children.items() if key != wrapper}
        path.append(wrapper)
        value = children[wrapper]
    return value, path, siblings


def _note(path: list[str], siblings: Mapping[str, object], *, opened: bool) -> str:
    """Return a clause that names the keys above the state dict, and the items next to it."""
    suffix = f"; next to it are {_listed(siblings)}" if siblings else ""
    place = quoted(".".join(path))
    if LIGHTNING in siblings:
        suffix += "; it is a checkpoint of Lightning"
    if opened:
        return f"the state dict under {place} is read{suffix}"
    return f"its state dict is under {place}, where from_pretrained does not look{suffix}"


def _listed(siblings: Mapping[str, object]) -> str:
    """Return `'optimizer' (12 tensors), 'epoch' and 3 more`; omit a count beyond the bounds."""
    labels = []
    walk = _Walk()
    for key, value in islice(siblings.items(), _SHOWN):
        try:
            count = walk.count(value)
        except _SpentError:
            count = 0
        tensors = f" ({count:,} tensor{'s' if count > 1 else ''})" if count else ""
        labels.append(quoted(key) + tensors)
    more = f" and {len(siblings) - _SHOWN:,} more" if len(siblings) > _SHOWN else ""
    return ", ".join(labels) + more


class _SpentError(Exception):
    """The error for a value larger than any state dict; its message begins with a verb."""


class _Walk:
    """A walk through nested values, with one budget for all of them."""

    def __init__(self, *, opened: bool = True) -> None:
        self._opened = opened  # if not, keys of nested dicts are put in parentheses
        self._values = _MOST_VALUES
        self._letters = _MOST_LETTERS

    def count(self, value: object, limit: int = _MOST_VALUES) -> int:
        """Return the number of tensors in a value, at most `limit`."""
        return sum(1 for _ in islice(self.tensors(value), limit))

    def tensors(
        self, value: object, prefix: str = ""
    ) -> Iterator[tuple[str, TensorView | Unreadable]]:
        """Yield every tensor in a value with its dotted name, in the value's order."""
        waiting: list[tuple[str, object, int]] = [(prefix, value, 0)]
        while waiting:
            name, value, depth = waiting.pop()
            view = tensor_view(value)
            if view is not None:
                yield name, view
                continue
            if depth > _DEEPEST:
                raise _SpentError(f"is nested more than {_DEEPEST} levels deep, at {quoted(name)}")
            start = len(waiting)
            for key, child in self.children(value).items():
                part = key if self._opened or not is_dict(child) else f"({key})"
                dotted = f"{name}.{part}" if name else part
                self._spend(letters=len(dotted))
                waiting.append((dotted, child, depth + 1))
            waiting[start:] = reversed(waiting[start:])

    def unique_tensors(
        self, value: object, prefix: str
    ) -> Iterator[tuple[str, TensorView | Unreadable]]:
        """Yield every tensor; raise _SpentError if two get one name: key "a.b", "b" below "a"."""
        names: set[str] = set()
        for name, view in self.tensors(value, prefix):
            if name in names:
                raise _SpentError(f"holds two tensors by the name {quoted(name)}")
            names.add(name)
            yield name, view

    def children(self, value: object) -> dict[str, object]:
        """Return the items of a container by key; the last item if a key is repeated."""
        match value:
            case PickledDict(pairs=pairs):
                return self._by_key(pairs)
            case Call(pairs=pairs) if pairs or _makes_dict(value):
                return self._by_key([*_arguments(value), *(pairs or [])])
            case Call(state=PickledDict(pairs=pairs)) if _module_class(value):
                return self._of_module(self._by_key(pairs))
            case list() | tuple() | PickledSet():
                items = value.items if isinstance(value, PickledSet) else value
                self._spend(values=len(items))
                return {str(place): item for place, item in enumerate(items)}
            case _:
                return {}

    def _of_module(self, attributes: Mapping[str, object]) -> dict[str, object]:
        """Return the parameters, buffers and submodules that torch lists in a state dict."""
        left_out = self.children(attributes.get("_non_persistent_buffers_set")).values()
        buffers = self.children(attributes.get("_buffers"))
        return {
            **self.children(attributes["_parameters"]),
            **{key: buffer for key, buffer in buffers.items() if key not in left_out},
            **self.children(attributes["_modules"]),
        }

    def _by_key(self, pairs: list[tuple[object, object]]) -> dict[str, object]:
        """Return the items by the text of each key, or by position if the key's type is unusual.

        The last item counts if a key is repeated; keys of two types with one text are a fault.
        """
        self._spend(values=len(pairs))
        items: dict[str, object] = {}
        types: dict[str, type] = {}
        for place, (key, item) in enumerate(pairs):
            text = _text(key) if isinstance(key, str | int) else f"(key {place})"
            if types.setdefault(text, type(key)) is not type(key):
                raise _SpentError("holds two values under keys with one text, such as 1 and '1'")
            items[text] = item
        return items

    def _spend(self, *, values: int = 0, letters: int = 0) -> None:
        self._values -= values
        self._letters -= letters
        if self._values < 0:
            raise _SpentError(f"holds more than {_MOST_VALUES:,} nested values")
        if self._letters < 0:
            raise _SpentError(f"holds names of more than {_MOST_LETTERS:,} letters in all")


def _text(key: str | int) -> str:
    """Return a key as part of a name, with surrogates escaped: they cannot be encoded."""
    text = str(key)
    return text if is_text(text) else text.encode("utf-8", "backslashreplace").decode()


def _arguments(call: Call) -> list[tuple[object, object]]:
    """Return the items of a call that builds a dict from a dict, or from pairs (Python 2)."""
    match call.args:
        case (PickledDict(pairs=pairs),):
            return pairs
        case (list(items),):
            return [(key, value) for key, value in items]
        case _:
            return []
