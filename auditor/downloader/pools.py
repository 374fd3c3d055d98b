"""Threads that read side by side, and how they end."""

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager


@contextmanager
def threads(count: int, stop: Callable[[], None]) -> Iterator[ThreadPoolExecutor]:
    """`count` threads, for as long as the block lasts; `stop` ends the waits of those at work.

    Where the block fails they are waited for, but not where the user interrupts it: they may sit in
    a read for seconds yet.
    """
    pool = ThreadPoolExecutor(count)
    try:
        yield pool
    except BaseException as error:
        stop()
        ours = isinstance(error, (Exception, GeneratorExit))
        pool.shutdown(wait=ours, cancel_futures=True)
        raise
    pool.shutdown()
