"""A judge's process: folders in, one line of JSON for each out."""

import json
import selectors
import subprocess
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

_SECONDS = 60


class Judge:
    """A judge of one engine; it starts again after a crash or a timeout."""

    def __init__(self, command: Sequence[str], log: Path) -> None:
        self._command = tuple(command)
        self._log = log
        self._process: subprocess.Popen[str] | None = None

    def registered(self) -> dict[str, Any]:
        """Return what the engine registers, with its version."""
        done = subprocess.run(  # noqa: S603 - our own program
            [*self._command, "--registered"], check=True, capture_output=True, text=True
        )
        return json.loads(done.stdout.splitlines()[-1])

    def outcome(self, folder: Path) -> dict[str, Any]:
        """Return the judge's line about a folder."""
        if self._process is None or self._process.poll() is not None:
            with self._log.open("a") as log:
                self._process = subprocess.Popen(  # noqa: S603 - our own program
                    self._command,
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=log,
                    text=True,
                )
        process = self._process
        assert process.stdin
        assert process.stdout
        try:
            process.stdin.write(f"{folder}\n")
            process.stdin.flush()
        except BrokenPipeError:
            return self._lost("the judge ended")
        with selectors.DefaultSelector() as selector:
            selector.register(process.stdout, selectors.EVENT_READ)
            if not selector.select(_SECONDS):
                return self._lost("timeout")
        line = process.stdout.readline()
        return json.loads(line) if line else self._lost("the judge ended")

    def _lost(self, why: str) -> dict[str, Any]:
        self.close()
        return {"judged": False, "loads": False, "error": why}

    def close(self) -> None:
        """End the process."""
        if self._process is not None:
            self._process.kill()
            self._process.communicate()
            self._process = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()
