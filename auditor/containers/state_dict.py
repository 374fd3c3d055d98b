"""The tensors of a pickled value by their dotted names, and which part of it is the state dict."""

from collections import OrderedDict
from collections.abc import Iterator, Mapping
from itertools import islice

from msgspec import Struct

from auditor.containers.pickle_values import Call, Global, PickledDict, PickledSet, is_text
from auditor.containers.torch_storages import Unreadable
from auditor.containers.torch_tensors import TensorView, instance_attributes, tensor_view
from auditor.messages import quoted

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
_DICTS = frozenset(
    {Global("collections", name) for name in ("OrderedDict", "defaultdict", "Counter")}
    | {Global(module, "dict") for module in ("builtins", "__builtin__")}
)
_DEFAULT = Global("collections", "defaultdict")
_COUNTER = Global("collections", "Counter")
_METHODS = frozenset(dir(OrderedDict))
_PARTS = ("_parameters", "_buffers", "_modules")  # of a module that was pickled whole

# A memo lets few bytes stand for any number of values, and a dict may hold itself. The names of
# the largest state dict that a pickle has room for, 16,000 (pickle_machine), are looked at three
# times. At the bound, of dicts in dicts, a walk takes 0.5 s.
_MOST_VALUES = 120_000
_MOST_LETTERS = 4_000_000  # of all names that are made
_DEEPEST = 64  # levels
_DEEPEST_WRAPPERS = 4
_SHOWN = 5


class StateDict(Struct, frozen=True, kw_only=True):
    """The tensors of a state dict, in its order."""

    tensors: Mapping[str, TensorView]
    unreadable: Mapping[str, str]  # names -> why, the verb first
    note: str | None = None  # which part of the value this is, where it is not the whole
    fault: str | None = None  # why not all of it was looked at; the verb first


def state_dict(value: object, *, opened: bool = True) -> StateDict:
    """The model's tensors in a pickled value: all of it, or what stands under a known key.

    A loader that takes the whole value for the state dict finds none of those under a key: unless
    it is `opened`, that key stands in their names in parentheses, which no model's names have.
    """
    walk = _Walk(opened=opened)
    tensors: dict[str, TensorView] = {}
    unreadable: dict[str, str] = {}
    note, fault = None, None
    try:
        value, path, rest = _unwrapped(walk, value)
        note = _note(path, rest, opened=opened) if path else None
        within = "" if opened else ".".join(f"({key})" for key in path)
        for name, found in walk.each_once(value, within):
            if isinstance(found, TensorView):
                tensors[name] = found
            else:
                unreadable[name] = found.reason
    except _SpentError as error:
        fault = str(error)
    return StateDict(tensors=tensors, unreadable=unreadable, note=note, fault=fault)


def is_dict(value: object) -> bool:
    """Whether a value is a dict, of tensors or not."""
    return isinstance(value, PickledDict) or (isinstance(value, Call) and _makes_dict(value))


def _makes_dict(call: Call) -> bool:
    return isinstance(call.callee, Global) and call.callee in _DICTS


def _unwrapped(walk: "_Walk", value: object) -> tuple[object, list[str], Mapping[str, object]]:
    """The state dict within a value, the keys that lead to it, and what is beside it."""
    path: list[str] = []
    rest: dict[str, object] = {}
    for _ in range(_DEEPEST_WRAPPERS):
        held = walk.children(value) if is_dict(value) else {}
        if any(tensor_view(one) is not None for one in held.values()):
            break
        known = (key for key in WRAPPERS if key in held)
        wrapper = next((key for key in known if walk.count(held[key], 1)), None)
        if wrapper is None:
            break
        rest = {key: one for key, one in held.items() if key != wrapper}
        path.append(wrapper)
        value = held[wrapper]
    return value, path, rest


def _note(path: list[str], rest: Mapping[str, object], *, opened: bool) -> str:
    """Which part of the value the state dict is."""
    beside = f"; beside it are {_listed(rest)}" if rest else ""
    place = quoted(".".join(path))
    if opened:
        return f"the state dict under {place} is read{beside}"
    return f"its state dict lies under {place}, where from_pretrained does not look{beside}"


def _listed(rest: Mapping[str, object]) -> str:
    """`'optimizer' (12 tensors), 'epoch' and 3 more`; not counted are those past all bounds."""
    shown = []
    walk = _Walk()
    for key, value in islice(rest.items(), _SHOWN):
        try:
            count = walk.count(value)
        except _SpentError:
            count = 0
        tensors = f" ({count:,} tensor{'s' if count > 1 else ''})" if count else ""
        shown.append(quoted(key) + tensors)
    more = f" and {len(rest) - _SHOWN:,} more" if len(rest) > _SHOWN else ""
    return ", ".join(shown) + more


class _SpentError(Exception):
    """A value is larger than any state dict; the verb comes first."""


class _Walk:
    """Walks through values, all together within one budget."""

    def __init__(self, *, opened: bool = True) -> None:
        self._opened = opened  # else keys of dicts in dicts stand in parentheses
        self._values = _MOST_VALUES
        self._letters = _MOST_LETTERS

    def count(self, value: object, enough: int = _MOST_VALUES) -> int:
        """How many tensors a value holds; counts no further than `enough`."""
        return sum(1 for _ in islice(self.named(value), enough))

    def named(
        self, value: object, within: str = ""
    ) -> Iterator[tuple[str, TensorView | Unreadable]]:
        """Every tensor in a value, by its dotted name, in the value's order."""
        waiting: list[tuple[str, object, int]] = [(within, value, 0)]
        while waiting:
            name, one, depth = waiting.pop()
            found = tensor_view(one)
            if found is not None:
                yield name, found
                continue
            if depth > _DEEPEST:
                raise _SpentError(f"is nested more than {_DEEPEST} levels deep, at {quoted(name)}")
            start = len(waiting)
            for key, child in self.children(one).items():
                part = key if self._opened or not is_dict(child) else f"({key})"
                dotted = f"{name}.{part}" if name else part
                self._spend(letters=len(dotted))
                waiting.append((dotted, child, depth + 1))
            waiting[start:] = reversed(waiting[start:])

    def each_once(
        self, value: object, within: str
    ) -> Iterator[tuple[str, TensorView | Unreadable]]:
        """The same; a name that comes twice ("a.b", and "b" in "a") is two tensors and no name."""
        seen: set[str] = set()
        for name, found in self.named(value, within):
            if name in seen:
                raise _SpentError(f"holds two tensors by the name {quoted(name)}")
            seen.add(name)
            yield name, found

    def children(self, value: object) -> dict[str, object]:
        """What a container holds by its keys; the last of those that are there twice."""
        match value:
            case PickledDict(pairs=pairs):
                return self._by_key(pairs)
            case list() | tuple():
                self._spend(values=len(value))
                return {str(place): one for place, one in enumerate(value)}
            case Call(pairs=pairs) if pairs or _makes_dict(value):
                given = _given(value)
                self._spend(values=len(given))
                return self._by_key([*given, *(pairs or [])])
            case Call(state=PickledDict(pairs=pairs)):
                return self._of_module(self._by_key(pairs))
            case PickledSet(items=items):
                self._spend(values=len(items))
                return {str(place): one for place, one in enumerate(items)}
            case _:
                return {}

    def _of_module(self, state: Mapping[str, object]) -> dict[str, object]:
        """What the state_dict() of a module would hold, by the attributes of the module."""
        held = (self.children(state.get(part)) for part in _PARTS)
        match state.get("_non_persistent_buffers_set"):
            case PickledSet(items=names):
                pass
            case Call(args=args):
                names = _listed_in(args)
            case _:
                names = []
        unsaved = {name for name in names if isinstance(name, str)}
        return {key: one for part in held for key, one in part.items() if key not in unsaved}

    def _by_key(self, pairs: list[tuple[object, object]]) -> dict[str, object]:
        """By the text of each key, as a name has it; a key of another kind has a place instead.

        True and 1 are one key to Python, 1 and "1" are two that would read alike.
        """
        self._spend(values=len(pairs))
        held: dict[str | int, object] = {}
        others: dict[str, object] = {}
        for place, (key, one) in enumerate(pairs):
            if isinstance(key, str | int):
                held[key] = one
            else:
                others[f"(key {place})"] = one
        found = {_text(key): one for key, one in held.items()} | others
        if len(found) != len(held) + len(others):
            raise _SpentError("holds two values under keys that read alike, such as 1 and '1'")
        return found

    def _spend(self, *, values: int = 0, letters: int = 0) -> None:
        self._values -= values
        self._letters -= letters
        if self._values < 0:
            raise _SpentError(f"holds more than {_MOST_VALUES:,} values, one within the other")
        if self._letters < 0:
            raise _SpentError(f"holds names of more than {_MOST_LETTERS:,} letters in all")


def _text(key: str | int) -> str:
    """A key as part of a name; halves of characters, which cannot be written, are escaped."""
    text = str(key)
    return text if is_text(text) else text.encode("utf-8", "backslashreplace").decode()


def _listed_in(args: object) -> list[object]:
    """The items of the list or tuple that is a call's first argument; [] for other calls."""
    match args:
        case (list() | tuple() as items, *_):
            return list(items)
        case _:
            return []


def _given(call: Call) -> list[tuple[object, object]]:
    """The pairs that a dict is made with: a dict, or a list of them, as Python 2 wrote it.

    __new__ alone puts nothing into a dict, whatever it is given.
    """
    if _makes_dict(call) and _hides_itself(call):
        raise _SpentError("is a dict with attributes in place of its own methods")
    if not _makes_dict(call) or call.how in {"NEWOBJ", "NEWOBJ_EX"}:
        return []
    args = call.args
    if call.callee == _DEFAULT and isinstance(args, tuple):
        args = args[1:]
    match args:
        case ():
            return []
        case (PickledDict(pairs=pairs),):
            return pairs
        case (list() | tuple() as items,) if call.callee != _COUNTER:
            if all(isinstance(one, list | tuple) and len(one) == 2 for one in items):  # noqa: PLR2004 - key, value
                return [(key, value) for key, value in items]
            raise _SpentError("is a dict that is not made of pairs")
        case _:
            raise _SpentError("is a dict that is made of something that is not read")


def _hides_itself(call: Call) -> bool:
    """Whether its state has attributes that hide a dict's own: `keys`, say."""
    if not call.built:
        return False
    for state in call.state if isinstance(call.state, tuple) else (call.state,):
        pairs = [] if state is None else instance_attributes(state)
        if pairs is None or any(not isinstance(key, str) or key in _METHODS for key, _ in pairs):
            return True
    return False
