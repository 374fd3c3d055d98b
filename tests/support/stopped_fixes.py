"""Stops `audit fix` before each of its system calls that write, and checks the files it leaves.

A child of this process runs the real command with os's functions counted: before the call of a
given number, or in the middle of it if it writes bytes, the child gets a signal.
"""

import atexit
import functools
import json
import os
import random
import shutil
import signal
import sys
from collections.abc import Callable, Mapping
from contextlib import suppress
from importlib import import_module
from itertools import product
from pathlib import Path
from typing import Any

from support.builders import safetensors_bytes
from support.checkpoints import TINY, expect, stored_by
from support.sharding import INDEX, shard_names

from auditor.audit.options import Options
from auditor.cli import main
from auditor.downloader.fetching import fetch
from auditor.downloader.local_folder import FIX_FOLDER
from auditor.fixing import renaming
from auditor.fixing.journal import RECORD
from auditor.fixing.plan import plan_fix
from auditor.formats import terminal

PREFIX = "module."
_COUNTED = (
    *("open", "fchown", "fchmod", "fsync", "link", "rename", "replace", "unlink", "mkdir", "rmdir"),
)
_CUT_IN_TWO = ("write", "copy_file_range")  # each has a length, or something of a length
_CODES = {signal.SIGINT: 130, signal.SIGTERM: 143}
_DONE, _REFUSED = 0, 3


class Stopping:
    """A folder, the folder that an undisturbed run makes of it, and runs that are stopped.

    The run is a fix of a spoiled folder, or the undo of such a fix.
    """

    def __init__(self, place: Path, command: str, *options: str, shards: int = 2) -> None:
        self._place, self._is_in_place = place, "--in-place" in options
        spoiled = spoiled_folder(place / "spoiled", shards)
        _load(spoiled)
        fixed = shutil.copytree(spoiled, place / "fixed")
        fix = ("fix", "--apply", *options)
        assert self._run(fixed, fix) == _DONE
        assert not (fixed / FIX_FOLDER).exists()
        is_undo = command == "--undo"
        self._command = ("fix", "--undo") if is_undo else fix
        self._start, end = (fixed, spoiled) if is_undo else (spoiled, fixed)
        self._old, self._new = contents_of(self._start), contents_of(end)

    def every_point(self, number: signal.Signals, *, first: int = 1, step: int = 1) -> int:
        """Stop it before its first call, its second, ... until one comes to its end; how many.

        Raises AssertionError where files are left that are neither the old nor the new ones, or the
        next run does not make of them what an undisturbed one makes.
        """
        for stops, point in enumerate(range(first, 10_000, step)):
            folder = shutil.copytree(self._start, self._place / "stopped")
            code = self._run(folder, self._command, stopped=(point, number))
            if code == _DONE and not (self._place / "hit").exists():
                shutil.rmtree(folder)
                return stops
            self._judge(folder, code, number, point)
            shutil.rmtree(folder)
        raise AssertionError("it never ends")

    def _judge(self, folder: Path, code: int, number: signal.Signals, point: int) -> None:
        left = contents_of(folder)
        where = (self._command, number.name, point, code)
        if number is signal.SIGKILL:
            assert code == -number, where
        else:
            assert code == _CODES[number], where
            assert left in (self._old, self._new), where
            assert not (folder / FIX_FOLDER).exists(), where
        for name in {*self._old, *self._new, *left}:
            old, new, content = (one.get(name) for one in (self._old, self._new, left))
            if self._is_in_place and name.endswith(".safetensors") and content not in {old, new}:
                assert data_of(content, old) == data_of(old, old), where
            else:
                assert content in {old, new}, (name, where)
        if not (folder / FIX_FOLDER / "journal.json").exists():
            assert left in (self._old, self._new), where
        for command in (("check",), ("fix",)):
            assert self._run(folder, command) in {0, 1}, where
            assert contents_of(folder) == left, where
        code = self._run(folder, self._command)
        is_finished = left == self._new and "--undo" in self._command
        assert code == _DONE or (code == _REFUSED and is_finished), where
        assert contents_of(folder) == self._new, where
        assert not (folder / FIX_FOLDER).exists(), where

    def _run(
        self,
        folder: Path,
        command: tuple[str, ...],
        stopped: tuple[int, signal.Signals] | None = None,
    ) -> int:
        """The exit code of `audit` in a child of this process; minus a signal's number."""
        hit = self._place / "hit"
        hit.unlink(missing_ok=True)
        child = os.fork()
        if child:
            _, status = os.waitpid(child, 0)
            said = (self._place / "stderr").read_text()
            assert "Traceback" not in said, said
            return os.waitstatus_to_exitcode(status)
        try:
            self._be_the_command([*command, str(folder)], stopped, hit)
        finally:
            os._exit(99)

    def _be_the_command(
        self, args: list[str], stopped: tuple[int, signal.Signals] | None, hit: Path
    ) -> None:
        said = os.open(self._place / "stderr", os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        os.dup2(said, 2)
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        sys.argv = ["audit", *args]
        atexit._clear()  # noqa: SLF001 - what this process would do at its end is not the child's
        for each in _CODES:
            signal.signal(each, signal.SIG_DFL)
        if stopped:
            _stop_at(*stopped, hit)
        try:
            main()
        except SystemExit as end:
            os._exit(end.code if isinstance(end.code, int) else 98)


def _load(folder: Path) -> None:
    """What a fix loads, so that not each of the children does: half of its time."""
    import_module("auditor.cli.check")
    import_module("auditor.cli.fix")
    plan = plan_fix(fetch(str(folder)), Options(requested=str(folder)))
    assert plan.changes
    terminal.render(plan.before)


def _stop_at(point: int, number: signal.Signals, hit: Path) -> None:
    """Have a signal come before the call of that number, or in the middle of it."""
    calls = iter(range(1, point + 1))
    mark = os.open  # the real one

    def stop() -> None:
        mark(hit, os.O_WRONLY | os.O_CREAT)
        os.kill(os.getpid(), number)

    def counted(real: Callable[..., Any], name: str) -> Callable[..., Any]:
        @functools.wraps(real)
        def call(*args: Any, **options: Any) -> Any:
            if next(calls, 0) != point:
                return real(*args, **options)
            if name in _CUT_IN_TWO and number is signal.SIGKILL:
                with suppress(OSError):
                    real(*_half(name, args), **options)
            stop()
            return real(*args, **options)

        return call

    renaming._rename = counted(renaming._rename, "_rename")  # noqa: SLF001 - a call of the system
    for name in (*_COUNTED, *_CUT_IN_TWO):
        real = getattr(os, name)
        setattr(os, name, counted(real, name))
        if real in os.supports_follow_symlinks:
            os.supports_follow_symlinks.add(getattr(os, name))


def _half(name: str, args: tuple[Any, ...]) -> tuple[Any, ...]:
    if name == "copy_file_range":
        source, target, count, *rest = args
        return (source, target, max(1, count // 2), *rest)
    file, content, *rest = args
    return (file, bytes(content)[: len(content) // 2], *rest)


def contents_of(folder: Path) -> Mapping[str, bytes]:
    """The files of a folder; a record of fixes, which has times in it, is the same as any other."""
    paths = (path for path in sorted(folder.iterdir()) if path.is_file())
    return {path.name: b"" if path.name == RECORD else path.read_bytes() for path in paths}


def data_of(content: bytes, old: bytes) -> bytes:
    """What comes after the old header."""
    return content[8 + int.from_bytes(old[:8], "little") :]


def spoiled_folder(folder: Path, shards: int) -> Path:
    """A small BERT saved behind a prefix, in shards, under a config with a layer too few."""
    folder.mkdir(parents=True)
    draw, names = random.Random(7), shard_names(shards)  # noqa: S311 - no secret
    config = {**TINY, "num_hidden_layers": 1, "architectures": ["BertForMaskedLM"]}
    (folder / "config.json").write_text(json.dumps({**config, "dtype": "float32"}, indent=2))
    placed: dict[str, str] = {}
    tensors = stored_by(expect("BertForMaskedLM"))
    for at, shard in enumerate(names):
        table = {f"{PREFIX}{one.name}": ("F32", one.shape) for one in tensors[at::shards]}
        content = bytearray(safetensors_bytes(table, metadata={"format": "pt"}))
        start = 8 + int.from_bytes(content[:8], "little")
        content[start:] = draw.randbytes(len(content) - start)
        (folder / shard).write_bytes(content)
        placed |= dict.fromkeys(table, shard)
    total = sum(4 * one.elements for one in tensors)
    index = {"metadata": {"total_size": total}, "weight_map": placed}
    (folder / INDEX).write_text(json.dumps(index, indent=2))
    return folder


WAYS = tuple(
    ((command, *options), number)
    for command, options, number in product(
        ("--apply", "--undo"), ((), ("--in-place",)), (signal.SIGKILL, *_CODES)
    )
)
