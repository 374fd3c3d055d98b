"""The Hub in a process of its own, so that it shares no interpreter with what is measured."""

import multiprocessing
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any


class Served:
    """The running server, as the measuring process sees it."""

    def __init__(self, pipe: Connection) -> None:
        self._pipe = pipe
        self.url: str = pipe.recv()

    def log(self) -> tuple[Any, ...]:
        """The requests (hub.Record) since the last call."""
        self._pipe.send("log")
        records: tuple[Any, ...] = self._pipe.recv()
        return records


@contextmanager
def serving(layers: int, shards: int) -> Iterator[Served]:
    """A server with all models, ended on the way out."""
    # Not fork: the measured processes come from this one, and must find it small (see measure).
    context = multiprocessing.get_context("spawn")
    here, there = context.Pipe()
    process = context.Process(target=_serve, args=(there, layers, shards))
    process.start()
    there.close()
    try:
        yield Served(here)
    finally:
        here.close()
        process.join()


def _serve(pipe: Connection, layers: int, shards: int) -> None:
    from support.hub import Hub, Quota  # noqa: PLC0415 - in the server's process only: see measure

    from benching.formats_models import add_formats  # noqa: PLC0415 - the same
    from benching.models import add_models  # noqa: PLC0415 - the same

    without_end = 10**9
    quota = Quota(api=without_end, resolvers=without_end)
    with Hub(quota=quota) as hub, tempfile.TemporaryDirectory() as folder:
        add_models(hub, layers, shards)
        add_formats(hub, Path(folder))
        pipe.send(hub.url)
        while _asked(pipe):
            pipe.send(hub.log)
            hub.reset_log()


def _asked(pipe: Connection) -> bool:
    """Whether there is another request for the log; False: the measuring process has closed."""
    try:
        pipe.recv()
    except EOFError:
        return False
    return True
