"""Write auditor/data/special_ids.json: the ids of special tokens that config classes start with.

`{model type: {key: id}}`, of each config class of the installed transformers that can be made.
"""

import json
import re
from pathlib import Path

PLACE = Path(__file__).resolve().parents[1] / "auditor" / "data" / "special_ids.json"
KEY = re.compile(r"\w+_token_(?:id|index)")


def special_ids() -> dict[str, dict[str, object]]:
    from transformers import CONFIG_MAPPING, PreTrainedConfig  # noqa: PLC0415 - a second

    found: dict[str, dict[str, object]] = {}
    for model_type, kind in sorted(CONFIG_MAPPING.items()):
        try:
            config: PreTrainedConfig = kind()
        except Exception:  # noqa: BLE001, S112 - an optional library, or a config that wants more
            continue
        ids = {
            key: value
            for key, value in sorted(config.to_dict().items())
            if KEY.fullmatch(key) and value not in (None, -1)
        }
        if ids:
            found[model_type] = ids
    return found


def main() -> None:
    lines = (f" {json.dumps(key)}: {json.dumps(ids)}" for key, ids in special_ids().items())
    PLACE.write_text("{\n" + ",\n".join(lines) + "\n}\n")


if __name__ == "__main__":
    main()
