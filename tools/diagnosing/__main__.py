"""`python -m diagnosing PART`: plants faults and counts the causes that are named.

PART is `names` (the default), `beside` (the weights), `numbers`, `sizes`, `layers` or `speed`; each
has options of its own. `-v` names what is explained in another way.
"""

import sys
from importlib import import_module

PARTS = ("names", "beside", "numbers", "sizes", "layers", "speed")


def main() -> None:
    words = sys.argv[1:]
    part = words.pop(0) if words and words[0] in PARTS else PARTS[0]
    sys.argv[1:] = words
    sys.exit(import_module(f"diagnosing.{part}").main())


if __name__ == "__main__":
    main()
