"""The JSON of an audit of each [folder, class] on stdin: `python -m parity_cases.audits KIND`.

The class is null for the declared one. KIND `generated` is without the oracle. As `audit --format
json` has it, but for the diagnosis: of a load report it says nothing, and of spoilt checkpoints it
takes most of the time.
"""

import gc
import json
import sys

from auditor.audit.model import examine_undiagnosed
from auditor.audit.options import Options
from auditor.checkpoint.selecting import select
from auditor.downloader.fetching import fetch
from auditor.errors import SourceError
from auditor.oracle import client
from auditor.report import Outcome, Report, Unaudited


def main() -> None:
    gc.disable()
    if sys.argv[1] == "generated":
        sys.modules["torch"] = None  # type: ignore[assignment]
        client.available_oracle = lambda *_: None  # type: ignore[assignment]
    for line in sys.stdin:
        print(json.dumps(audited(*json.loads(line)).to_dict()))


def audited(folder: str, target: str | None) -> Report | Unaudited:
    try:
        snapshot = fetch(folder, source="auto", token=None, say=_nothing, choose=select)
    except SourceError as error:
        return Outcome(requested=folder).as_unaudited(error.reason, str(error))
    return examine_undiagnosed(snapshot, Options(requested=folder, target=target))


def _nothing(_line: str) -> None:
    """Audits of folders have nothing to say."""


if __name__ == "__main__":
    main()
