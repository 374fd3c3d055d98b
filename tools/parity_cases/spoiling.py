"""What can have happened to a checkpoint: functions of its names and shapes."""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping

from auditor.analytic import Expectation, Role

Stored = dict[str, tuple[int, ...]]  # name on disk -> shape, in the file's order

_OLDER = (
    ("LayerNorm.weight", "LayerNorm.gamma"),
    ("LayerNorm.bias", "LayerNorm.beta"),
    (".parametrizations.weight.original0", ".weight_g"),
    (".parametrizations.weight.original1", ".weight_v"),
)


def written(expectation: Expectation) -> Stored:
    """What save_pretrained writes: all but what is tied."""
    return {
        tensor.name: tensor.shape
        for tensor in expectation.tensors
        if tensor.role in {Role.PARAMETER, Role.BUFFER}
    }


def spoilt(whole: Stored, expectation: Expectation) -> Iterator[tuple[str, Stored]]:
    """(case, checkpoint) for every way of spoiling that changes this one."""
    for case, spoil in _CASES.items():
        after = spoil(dict(whole), expectation)
        if list(after.items()) != list(whole.items()):
            yield case, after
    tied = [tensor for tensor in expectation.tensors if tensor.role is Role.TIED]
    if tied:
        sources = {tensor.tied_to for tensor in tied}
        targets = {tensor.name: tensor.shape for tensor in tied}
        rest = {name: shape for name, shape in whole.items() if name not in sources}
        yield "tied: both stored", whole | targets
        yield "tied: only the target", rest | targets
        yield "tied: neither", rest


def _dropped(place: float) -> Callable[[Stored, Expectation], Stored]:
    def drop(stored: Stored, _: Expectation) -> Stored:
        gone = list(stored)[int(place * (len(stored) - 1))]
        return _without(stored, [gone])

    return drop


def _reshaped(stored: Stored, _: Expectation) -> Stored:
    name = list(stored)[len(stored) // 2]
    return stored | {name: (*stored[name], 2)}


def _buffers_dropped(stored: Stored, expectation: Expectation) -> Stored:
    return _without(stored, _of_role(expectation, Role.BUFFER))


_EXPERT = re.compile(r"(.*\.experts\.)(\d+)\.(.*)")


def _expert_dropped(stored: Stored, _: Expectation) -> Stored:
    """The last expert of a layer, with all of its tensors."""
    found = [match for name in stored if (match := _EXPERT.fullmatch(name))]
    if not found:
        return stored
    gone = found[-1].expand(r"\1\2.")
    return _without(stored, [name for name in stored if name.startswith(gone)])


def _matrix_dropped(stored: Stored, _: Expectation) -> Stored:
    """One and the same matrix of all of a layer's experts."""
    found = [match for name in stored if (match := _EXPERT.fullmatch(name))]
    if not found:
        return stored
    layer, _number, matrix = found[0].groups()
    gone = re.compile(re.escape(layer) + r"\d+\." + re.escape(matrix))
    return _without(stored, [name for name in stored if gone.fullmatch(name)])


def _experts_dropped(stored: Stored, _: Expectation) -> Stored:
    """All experts of a layer."""
    found = [match[1] for name in stored if (match := _EXPERT.fullmatch(name))]
    return _without(stored, [name for name in stored if found and name.startswith(found[0])])


def _without(stored: Stored, gone: Iterable[str]) -> Stored:
    gone = frozenset(gone)
    return {name: shape for name, shape in stored.items() if name not in gone}


def _of_role(expectation: Expectation, role: Role) -> Stored:
    return {tensor.name: tensor.shape for tensor in expectation.tensors if tensor.role is role}


def _extra(stored: Stored, expectation: Expectation) -> Stored:
    first = next(iter(stored))
    prefix = expectation.prefix or "model"
    extras = ("extra.weight", f"{first}_extra", f"{prefix}.extra.LayerNorm.beta")
    return stored | dict.fromkeys(extras, (2,))


def _legacy(stored: Stored, _: Expectation) -> Stored:
    return _renamed(stored, _older)


def _older(name: str) -> str:
    for new, old in _OLDER:
        name = name.replace(new, old)
    return name


def _stripped(stored: Stored, expectation: Expectation) -> Stored:
    prefix = f"{expectation.prefix}." if expectation.prefix else ""
    return _renamed(stored, lambda name: name.removeprefix(prefix))


def _added(stored: Stored, expectation: Expectation) -> Stored:
    prefix = f"{expectation.prefix}." if expectation.prefix else ""
    return _renamed(stored, lambda name: f"{prefix}{name}")


def _half(stored: Stored, expectation: Expectation) -> Stored:
    bare = f"{expectation.prefix}." if expectation.prefix else ""
    other = {
        name: name.removeprefix(bare) if name.startswith(bare) else f"{bare}{name}"
        for name in list(stored)[::2]
    }
    return _renamed(stored, lambda name: other.get(name, name))


def _module(stored: Stored, _: Expectation) -> Stored:
    return _renamed(stored, lambda name: f"module.{name}")


def _buffers(stored: Stored, _: Expectation) -> Stored:
    """What older versions stored of the rotary and position buffers."""
    layer = next((name for name in stored if ".0." in name), next(iter(stored)))
    head = layer.split(".0.")[0]
    return stored | {
        f"{head}.0.self_attn.rotary_emb.inv_freq": (2,),
        f"{head}.embeddings.position_ids": (1, 4),
        f"{head}.0.attn.masked_bias": (),
    }


def _own_buffers(stored: Stored, expectation: Expectation) -> Stored:
    """What older versions stored of this very class, by its closed form."""
    return stored | _of_role(expectation, Role.LEGACY)


def _drafting(stored: Stored, expectation: Expectation) -> Stored:
    """What others learn and the class does not read, by its closed form."""
    return stored | _of_role(expectation, Role.EXTRA)


def _renamed(stored: Mapping[str, tuple[int, ...]], rename: Callable[[str], str]) -> Stored:
    return {rename(name): shape for name, shape in stored.items()}


_CASES: dict[str, Callable[[Stored, Expectation], Stored]] = {
    "the first dropped": _dropped(0.0),
    "one dropped": _dropped(0.5),
    "the last dropped": _dropped(1.0),
    "one reshaped": _reshaped,
    "some extra": _extra,
    "legacy names": _legacy,
    "prefix stripped": _stripped,
    "prefix added": _added,
    "half of them prefixed": _half,
    "module. in front": _module,
    "buffers of old": _buffers,
    "its own buffers of old": _own_buffers,
    "what others read": _drafting,
    "buffers dropped": _buffers_dropped,
    "an expert dropped": _expert_dropped,
    "a matrix of all experts dropped": _matrix_dropped,
    "all experts of a layer dropped": _experts_dropped,
}
