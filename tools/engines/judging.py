"""A judge's process: folders in, one line of JSON for each out."""

import contextlib
import json
import os
import selectors
import subprocess
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import IO, Any, Self

_SECONDS = 300  # a judge spends 60 on a folder at most, and imports its engine before the first


class Judge:
    """A judge of one engine; it starts again after a crash or a timeout."""

    def __init__(self, command: Sequence[str], log: Path) -> None:
        self._command = tuple(command)
        self._log = log
        self._process: subprocess.Popen[bytes] | None = None
        self._buffer = b""

    def registered(self) -> dict[str, Any]:
        """Return what the engine registers, with its version."""
        done = subprocess.run(  # noqa: S603 - our own program
            [*self._command, "--registered"], check=True, capture_output=True, text=True
        )
        return json.loads(done.stdout.splitlines()[-1])

    def outcomes(self, folders: Sequence[Path]) -> list[dict[str, Any]]:
        """Return the judge's line about each folder.

        All folders are sent before an answer is read, so that the two processes seldom wait for
        each other; the paths must fit into a pipe. If the judge ends, the folder that it was at is
        lost and a new judge gets the others.
        """
        answers: list[dict[str, Any]] = []
        while len(answers) < len(folders):
            process = self._running()
            assert process.stdin
            assert process.stdout
            with contextlib.suppress(BrokenPipeError):
                lines = "".join(f"{one}\n" for one in folders[len(answers) :])
                process.stdin.write(lines.encode())
                process.stdin.flush()
            while len(answers) < len(folders):
                line = self._line(process.stdout)
                if not line:
                    answers.append({"judged": False, "loads": False, "error": "the judge ended"})
                    self.close()
                    break
                answers.append(json.loads(line))
        return answers

    def _running(self) -> subprocess.Popen[bytes]:
        if self._process is None:
            with self._log.open("a") as log:
                self._process = subprocess.Popen(  # noqa: S603 - our own program
                    self._command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log
                )
        return self._process

    def _line(self, stream: IO[bytes]) -> bytes:
        """Return the next line; an empty one if the judge ended or takes too long."""
        while b"\n" not in self._buffer:
            with selectors.DefaultSelector() as selector:
                selector.register(stream, selectors.EVENT_READ)
                if not selector.select(_SECONDS):
                    return b""
            part = os.read(stream.fileno(), 1 << 16)
            if not part:
                return b""
            self._buffer += part
        line, _, self._buffer = self._buffer.partition(b"\n")
        return line

    def close(self) -> None:
        """End the process."""
        if self._process is not None:
            self._process.kill()
            self._process.communicate()
            self._process = None
            self._buffer = b""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()
