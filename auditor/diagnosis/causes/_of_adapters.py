"""Values of an adapter_config.json that fit the adapter's file: ranks, modules, layers.

The names of the stored tensors give the modules with an adapter, and their shapes give its rank.
"""

import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any

from auditor.analytic.adapters.own_names import is_own, module_of
from auditor.analytic.config_keys import Key
from auditor.diagnosis.case import Case
from auditor.diagnosis.solving.candidates import KeyChange

Changes = tuple[KeyChange, ...]

_RANK = 8  # peft's default rank
_LAYER = re.compile(r"\.(\d+)\.")
_MAGNITUDE = ".lora_magnitude_vector"


def changes_of_adapter(case: Case) -> Iterator[Changes]:
    """Yield changes of adapter_config.json that change the expected tensors, likeliest first."""
    for changes in _changes(case):
        effective = tuple(one for one in changes if one.value != one.key.value)
        if effective:
            yield effective


def _changes(case: Case) -> Iterator[Changes]:
    change = partial(_change, case.config)
    yield from _ranks(case, change)
    own = [name for name in case.shapes if is_own(name)]
    modules = [module_of(name) for name in own]
    if any(name.endswith(_MAGNITUDE) for name in (*case.missing.names, *case.unexpected.names)):
        yield (change("use_dora", any(name.endswith(_MAGNITUDE) for name in own)),)
    targets = change("target_modules", sorted({module.rpartition(".")[2] for module in modules}))
    yield (targets,)
    numbers = sorted({int(match[1]) for module in modules if (match := _LAYER.search(module))})
    for key, values in (
        ("layers_to_transform", (None, numbers)),
        ("bias", ("none", "all", "lora_only")),
    ):
        yield from ((change(key, value),) for value in values)
    whole = {module_of(name).rpartition(".")[2] for name in case.shapes if not is_own(name)}
    if "modules_to_save" not in whole:  # else the names are in memory, of PEFT's wrapper
        saved = change("modules_to_save", sorted(whole) or None)
        yield (saved,)
        yield (saved, targets)


def _ranks(case: Case, change: Callable[[str, Any], KeyChange]) -> Iterator[Changes]:
    """Yield the most common stored rank as `r`, with a rank_pattern for modules of other ranks."""
    ranks = {
        name.partition(".lora_")[0]: shape[0]
        for name, shape in case.shapes.items()
        if name.endswith((".lora_A.weight", ".lora_embedding_A")) and shape
    }
    if ranks and case.mismatched:
        usual = Counter(ranks.values()).most_common(1)[0][0]
        others = {one.rpartition(".")[2]: rank for one, rank in ranks.items() if rank != usual}
        r, pattern = change("r", usual), change("rank_pattern", others)
        yield from ((r,), (pattern,), (r, pattern))


def _change(config: Mapping[str, Any], key: str, value: Any) -> KeyChange:
    declared = config.get(key, _RANK if key == "r" else None)
    return KeyChange(Key(key, declared, default=key not in config), value)
