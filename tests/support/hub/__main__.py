"""Serves a folder of models: `PYTHONPATH=tests python -m support.hub --folder X --port 0`.

Prints the URL, then serves.

A model is a folder `X/org/name` or `X/name` that holds a file. Ends on SIGTERM or SIGINT.
"""

import argparse
import contextlib
import json
import signal
import sys
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path

from . import Hub, Quota


def models(folder: Path) -> Iterator[tuple[str, dict[str, Path]]]:
    """Ids and files; a folder that holds only folders is an organisation."""
    for top in sorted(path for path in folder.iterdir() if path.is_dir()):
        held = [top] if any(path.is_file() for path in top.iterdir()) else sorted(top.iterdir())
        for model in held:
            files = {
                path.relative_to(model).as_posix(): path
                for path in model.rglob("*")
                if path.is_file()
            }
            yield model.relative_to(folder).as_posix(), files


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="hub", description=__doc__)
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--api-quota", type=int, default=Quota().api, help="requests a window")
    parser.add_argument("--resolver-quota", type=int, default=Quota().resolvers)
    parser.add_argument("--window", type=int, default=Quota().window, help="seconds")
    parser.add_argument("--fail-rate", type=float, default=0.0, help="share of answers, 0 to 1")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument(
        "--log", type=Path, help="write the requests here, as JSON lines, at the end"
    )
    return parser.parse_args()


def main() -> None:
    options = arguments()
    signals = {signal.SIGTERM, signal.SIGINT}
    signal.pthread_sigmask(signal.SIG_BLOCK, signals)  # before any thread, so that all inherit it
    quota = Quota(api=options.api_quota, resolvers=options.resolver_quota, window=options.window)
    with Hub(port=options.port, quota=quota) as hub:
        for name, files in models(options.folder):
            hub.add(name, files)
        if options.fail_rate:
            hub.misbehave_at_random(rate=options.fail_rate, seed=options.seed)
        with contextlib.suppress(BrokenPipeError):
            sys.stdout.write(f"{hub.url}\n")
            sys.stdout.flush()
        signal.sigwait(signals)
    if options.log:
        lines = (json.dumps(asdict(record)) + "\n" for record in hub.log)
        options.log.write_text("".join(lines), encoding="utf-8")


if __name__ == "__main__":
    main()
