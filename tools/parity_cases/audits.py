"""The JSON of an audit of each folder on stdin: `python -m parity_cases.audits [CLASS]`.

As `audit --format json` has it, but for the diagnosis: of a load report it says nothing, and of
spoilt checkpoints it takes most of the time.
"""

import gc
import json
import sys

from auditor.audit.model import examine_undiagnosed
from auditor.audit.options import Options
from auditor.checkpoint.selecting import select
from auditor.downloader.fetching import fetch
from auditor.errors import SourceError
from auditor.report import Outcome, Report, Unaudited


def main() -> None:
    gc.disable()
    for line in sys.stdin:
        print(json.dumps(audited(line.rstrip("\n"), *sys.argv[1:]).to_dict()))


def audited(folder: str, target: str | None = None) -> Report | Unaudited:
    try:
        snapshot = fetch(folder, source="auto", token=None, say=_nothing, choose=select)
    except SourceError as error:
        return Outcome(requested=folder).as_unaudited(error.reason, str(error))
    return examine_undiagnosed(snapshot, Options(requested=folder, target=target))


def _nothing(_line: str) -> None:
    """Audits of folders have nothing to say."""


if __name__ == "__main__":
    main()
