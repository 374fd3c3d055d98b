"""`python -m fuzz`: see `run`; `python -m fuzz stops`: see `stops`."""

import sys

from fuzz import run, stops

if __name__ == "__main__":
    if sys.argv[1:2] == ["stops"]:
        del sys.argv[1]
        sys.exit(stops.main())
    sys.exit(run.main())
