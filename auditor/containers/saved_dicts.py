"""The model's part of what a training saved: which tensors are its own, and their names in it."""

import re
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from auditor.containers.state_dict import WRAPPERS
from auditor.messages import quoted

# Keys under which trainings save what is not the model.
_OTHERS = re.compile(
    r"optim(izers?)?(_states?(_dict)?)?|opt(_state)?|(lr_)?schedulers?|dataloader(_state_dict)?"
    r"|train(er|ing)?_state|(cuda_|cpu_|numpy_|python_)?(rng|random)(_states?)?|(grad_)?scaler"
    r"|(global_)?steps?|epochs?|args|extra_state",
    re.IGNORECASE,
)


class ModelPart(NamedTuple):
    """The model's tensors: their names in all that was saved, and in the model's state dict."""

    names: Mapping[str, str]
    prefix: str  # the keys above the state dict
    others: tuple[str, ...]  # what is next to it, "'optim' (42 tensors)"


def model_of(names: Iterable[str], keys: Mapping[str, tuple[str, ...]]) -> ModelPart:
    """Return the model's part of saved tensors, by the keys of the dicts that lead to each.

    Without such keys a name is the only key, and its first word tells an optimizer's state.
    """
    paths = {name: keys.get(name) or (name,) for name in names}
    others: Counter[str] = Counter()
    own: dict[str, tuple[str, ...]] = {}
    for name, path in paths.items():
        words = path[:-1] if len(path) > 1 else path[0].split(".")[:1]
        word = next((word for word in words if _OTHERS.fullmatch(word)), None)
        if word is None:
            own[name] = path
        else:
            others[word] += 1
    above: tuple[str, ...] = ()
    while (key := _wrapper(own.values(), len(above))) is not None:
        above = (*above, key)
        for name, path in list(own.items()):
            if path[: len(above)] != above:
                others[path[len(above) - 1]] += 1
                del own[name]
    inner = {name: ".".join(path[len(above) :]) for name, path in own.items()}
    if len(set(inner.values())) < len(inner):
        inner = {name: name for name in own}
    counts = (
        f"{quoted(word)} ({count:,} tensor{'' if count == 1 else 's'})"
        for word, count in others.items()
    )
    return ModelPart(inner, ".".join(above), tuple(counts))


def _wrapper(paths: Iterable[tuple[str, ...]], depth: int) -> str | None:
    """Return the key at this depth that has the state dict below it; None if it is here."""
    keys = Counter(path[depth] if len(path) > depth + 1 else None for path in paths)
    direct = keys.pop(None, 0)
    known = next((key for key in WRAPPERS if key in keys and keys[key] > direct), None)
    only = next(iter(keys), None) if len(keys) == 1 and not direct else None
    return known or only
