"""Measure how often a depth is named together with its list by layer.

Every type of transformers with a language model, whose config class writes a list as long as its
depth (`layer_types`, `mlp_layer_types`, `layers_block_type`), is taken with DEPTH layers as stored
and MORE than that as declared. A type counts if the depth is named with its true value, and each
list with its true value or as one that no shape shows. Types without a closed form are built by
the oracle. `-v` prints the other ones; a model type takes only that type.
"""

import sys
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

from support.small_snapshots import snapshot_of

from auditor.analytic.config_keys import value_at
from auditor.audit.options import Options
from diagnosing.sizes import shapes_of, stored
from diagnosing.tally import is_verbose, timed

DEPTH, MORE = 6, 2
DEPTHS = ("num_hidden_layers", "n_layers", "num_layers", "n_layer")


def configs() -> Iterator[tuple[str, str, Mapping[str, Any], Mapping[str, Any], set[str]]]:
    """Yield type, key of the depth, the declared and the true config, and the keys of the lists."""
    from transformers import CONFIG_MAPPING  # noqa: PLC0415 - takes seconds
    from transformers.models.auto import modeling_auto  # noqa: PLC0415 - likewise

    wanted = {word for word in sys.argv[1:] if not word.startswith("-")}
    for model_type, target in modeling_auto.MODEL_FOR_CAUSAL_LM_MAPPING_NAMES.items():
        if (wanted and model_type not in wanted) or not isinstance(target, str):
            continue
        for key in DEPTHS:
            try:
                kind = CONFIG_MAPPING[model_type]
                small, large = (
                    {**kind(**{key: depth}).to_dict(), "architectures": [target]}
                    for depth in (DEPTH, DEPTH + MORE)
                )
            except Exception:  # noqa: BLE001, S112 - a class that refuses a small depth
                continue
            if small.get(key) != DEPTH:
                continue
            lists = {
                name
                for name, items in small.items()
                if isinstance(items, list)
                and len(items) == DEPTH
                and len(large.get(name) or ()) == DEPTH + MORE
            }
            if lists:
                yield model_type, key, large, small, lists
            break


def main() -> None:
    counts: Counter[str] = Counter()
    for model_type, key, declared, true, lists in configs():
        since = time.time()
        shapes = shapes_of(true)
        if shapes is None or shapes_of(declared) is None:
            counts["not built"] += 1
            print(f"{model_type}: not built", flush=True)
            continue
        report, _, spent = timed(snapshot_of(stored(shapes), **declared), Options(requested="x"))
        if report.verdict == "clean":
            counts["clean"] += 1
            continue
        fields = {path: held for one in report.diagnosis for path, _, held in one.fields}
        unread = {path for one in report.diagnosis for path, _ in one.undetermined}
        right = fields.get(key) == DEPTH and all(
            fields.get(name, value_at(true, name)) == value_at(true, name)
            and name in fields.keys() | unread
            for name in lists
        )
        counts["named" if right else "not named"] += 1
        if is_verbose() and not right:
            summaries = [one.summary for one in report.diagnosis]
            print(f"{model_type} {sorted(lists)}: {summaries}", flush=True)
        if is_verbose():
            by = report.expected.by if getattr(report, "expected", None) else "nothing"
            print(f"  {model_type}: {by}, {spent:.1f} of {time.time() - since:.1f} s", flush=True)
    print(dict(counts))
