"""`python -m benching PART`: measures `audit`, in processes of its own.

PART is `headers` (beside other tools, the default), `companions` (what files beside the weights
cost), `sweep` (a night beside huggingface_hub), `store` (bytes of a store), `values` (numbers) or
`types` (limits of `claim` and `explain` for each model type); each has options of its own.
"""

import sys
from importlib import import_module

_SAME = ("headers", "companions", "sweep", "store", "values")  # a module of that name
PARTS = {**{name: name for name in _SAME}, "types": "type_speed"}


def main() -> None:
    words = sys.argv[1:]
    part = PARTS[words.pop(0)] if words and words[0] in PARTS else "headers"
    sys.argv[1:] = words
    sys.exit(import_module(f"benching.{part}").main())


if __name__ == "__main__":
    main()
