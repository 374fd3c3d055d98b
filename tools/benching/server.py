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
        records: tuple[Any, ...] = self._ask("log")
        return records

    def wait(self, seconds: float) -> None:
        """From now on every answer comes so much later than it is ready."""
        self._ask(seconds)

    def _ask(self, what: str | float) -> Any:
        self._pipe.send(what)
        return self._pipe.recv()


@contextmanager
def serving(layers: int, experts: int) -> Iterator[Served]:
    """A server with all models, ended on the way out."""
    # Not fork: the measured processes come from this one, and must find it small (see measure).
    context = multiprocessing.get_context("spawn")
    here, there = context.Pipe()
    process = context.Process(target=_serve, args=(there, layers, experts))
    process.start()
    there.close()
    try:
        yield Served(here)
    finally:
        here.close()
        process.join()


def _serve(pipe: Connection, layers: int, experts: int) -> None:
    from support.hub import Hub, Late, Quota  # noqa: PLC0415 - in its process only: see measure

    from benching.formats_models import add_formats  # noqa: PLC0415 - the same
    from benching.models import add_models  # noqa: PLC0415 - the same
    from benching.repositories import add_repositories  # noqa: PLC0415 - the same

    without_end = 10**9
    quota = Quota(api=without_end, resolvers=without_end)
    with Hub(quota=quota) as hub, tempfile.TemporaryDirectory() as folder:
        add_models(hub, layers, experts)
        add_repositories(hub)
        add_formats(hub, Path(folder))
        pipe.send(hub.url)
        while (asked := _asked(pipe)) is not None:
            if asked == "log":
                pipe.send(hub.log)
                hub.reset_log()
            else:
                hub.behave()
                if asked:
                    hub.misbehave(fault=Late(seconds=asked))
                pipe.send(None)


def _asked(pipe: Connection) -> Any:
    """What is asked next; None: the measuring process has closed."""
    try:
        return pipe.recv()
    except EOFError:
        return None
