"""A relay before a server on loopback, whose answers come as late as from far away."""

import asyncio
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import partial

_AT_ONCE = 64 * 1024  # bytes

_Meetings = set[asyncio.Task[None] | None]  # asyncio itself may forget one that has only to read


@contextmanager
def relayed(ports: Mapping[int, int], seconds: float) -> Iterator[None]:
    """Listen on each port of loopback for the one behind it; answers come so much later."""
    loop = asyncio.new_event_loop()
    ended = asyncio.Event()
    listening = threading.Event()

    async def serve() -> None:
        meetings: _Meetings = set()
        servers = [
            await asyncio.start_server(partial(_meet, behind, seconds, meetings), "127.0.0.1", port)
            for port, behind in ports.items()
        ]
        listening.set()
        await ended.wait()
        for server in servers:
            server.close()

    def run() -> None:
        with asyncio.Runner(loop_factory=lambda: loop) as runner:  # it ends what is under way
            runner.run(serve())

    thread = threading.Thread(target=run)
    thread.start()
    listening.wait()
    try:
        yield
    finally:
        loop.call_soon_threadsafe(ended.set)
        thread.join()


async def _meet(
    port: int,
    seconds: float,
    meetings: _Meetings,
    reader: asyncio.StreamReader,
    writer: asyncio.StreamWriter,
) -> None:
    meetings.add(asyncio.current_task())
    there, back = await asyncio.open_connection("127.0.0.1", port)
    try:
        with suppress(ConnectionError, asyncio.CancelledError):
            await asyncio.gather(_pass(reader, back, 0.0), _pass(there, writer, seconds))
    finally:
        back.close()
        writer.close()
        meetings.discard(asyncio.current_task())


async def _pass(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, late: float) -> None:
    """Pass on what comes, and its end, so much later."""
    later = partial(asyncio.get_running_loop().call_later, late)
    while data := await reader.read(_AT_ONCE):
        later(writer.write, data)
    later(writer.close)
    await asyncio.sleep(late)
