"""Write auditor/data/config_relations.json: the relations of config keys that models need.

`{model type: {relation: error}}`: a model of the type is built and called with one relation broken,
and the error is the class that this raises. A relation without an entry was broken without an error
or was not tried. `auditor/analytic/config_classes/relations.py` lists the relations.
"""

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from small_models import OTHERS, config_class, outcome, small_values

from auditor.analytic.config_classes.relations import RELATIONS, keys_of

PLACE = Path(__file__).resolve().parents[1] / "auditor" / "data" / "config_relations.json"


def relations() -> dict[str, dict[str, list[str]]]:
    import transformers  # noqa: PLC0415 - seconds
    from transformers import CONFIG_MAPPING  # noqa: PLC0415 - likewise

    transformers.logging.set_verbosity_error()
    found: dict[str, dict[str, list[str]]] = {}
    for model_type in sorted(sys.argv[1:] or CONFIG_MAPPING):
        errors = dict(errors_of(model_type))
        if errors:
            found[model_type] = errors
            print(model_type, errors, flush=True)
    return found


def errors_of(model_type: str) -> Iterator[tuple[str, list[str]]]:
    """Yield (relation, [its two keys, class of the error]) for each relation that a type needs."""
    kind = config_class(model_type)
    try:
        defaults = kind().to_dict()
    except Exception:  # noqa: BLE001 - an optional library, or a config that wants more
        return
    pairs = [(one, keys_of(one, defaults, kind.attribute_map)) for one in RELATIONS]
    values = working_values(model_type) if any(keys for _, keys in pairs) else None
    for relation, keys in pairs if values is not None else ():
        number = {**defaults, **values}.get(keys[0]) if keys else None
        if keys and type(number) is int:
            error = outcome(model_type, {**values, keys[1]: relation.broken(number)})
            if error is not None:
                yield relation.name, [*keys, error.partition(":")[0]]


def working_values(model_type: str) -> dict[str, Any] | None:
    """Return small values with which a model of the type can be called; None if none is found."""
    refused = ""
    for other in OTHERS:
        values = small_values(config_class(model_type), other)
        if (refused := outcome(model_type, values) or "") == "":
            return values
    print(f"{model_type}: {refused}", file=sys.stderr, flush=True)
    return None


def main() -> None:
    lines = (f" {json.dumps(key)}: {json.dumps(errors)}" for key, errors in relations().items())
    text = "{\n" + ",\n".join(lines) + "\n}\n"
    if len(sys.argv) == 1:
        PLACE.write_text(text)


if __name__ == "__main__":
    main()
