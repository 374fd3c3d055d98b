"""Headless Chromium, spoken to over its debugging pipe: no network, no driver, no dependency."""

import fcntl
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from select import select
from typing import Any

import pytest

AXE = Path(sys.prefix) / "axe" / "node_modules" / "axe-core" / "axe.min.js"
NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--disable-sync",
    "--disable-dev-shm-usage",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-default-apps",
    "--no-first-run",
    "--hide-scrollbars",
    "--remote-debugging-pipe",
)
PATIENCE = 60  # seconds for one answer, on a machine that is busy with other tests

# The browser reads commands from its file descriptor 3 and writes answers to 4.
_START = (
    "import os, sys; os.dup2(int(sys.argv[1]), 3); os.dup2(int(sys.argv[2]), 4); "
    "os.execv(sys.argv[3], sys.argv[3:])"
)


def found() -> str | None:
    """Where Chromium is; None: it is not installed."""
    return next(filter(None, map(shutil.which, NAMES)), None)


class Page:
    """One page of a running browser."""

    def __init__(self, commands: int, answers: int) -> None:
        self._commands, self._answers = commands, answers
        self._rest, self._last, self._session = b"", 0, ""
        self.complaints: list[str] = []  # what the console and the log had to say
        self.requests: list[str] = []
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        attached = self.call("Target.attachToTarget", targetId=target, flatten=True)
        self._session = attached["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")

    def open(
        self, path: Path, *, dark: bool = False, width: int = 1280, height: int = 1600
    ) -> float:
        """Load a file; the seconds until it was drawn."""
        self.shape(dark=dark, width=width, height=height)
        since = time.monotonic()
        self.call("Page.navigate", url=path.resolve().as_uri())
        while (
            self.do("document.readyState") != "complete"
            or self.do("location.href") == "about:blank"
        ):
            pass  # each question waits for its answer
        return time.monotonic() - since

    def shape(self, *, dark: bool, width: int, height: int = 1600) -> None:
        """Set the screen's size and colour scheme."""
        scheme = [{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}]
        self.call("Emulation.setEmulatedMedia", features=scheme)
        size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False}
        self.call("Emulation.setDeviceMetricsOverride", **size)

    def axe(self) -> list[str]:
        """The faults that axe-core finds on the page; skip the test where it is not installed."""
        if not AXE.exists():
            pytest.skip("axe-core is not installed: npm")
        self.do(AXE.read_text())
        return self.do(
            "axe.run(document, {resultTypes: ['violations'], rules: "
            "{'label-content-name-mismatch': {enabled: true}}}).then((said) => said.violations"
            ".map((one) => one.id + ': ' + one.nodes.map((node) => node.html).join(' | ')))"
        )

    def do(self, script: str) -> Any:
        """The value of an expression on the page, awaited if it is a promise."""
        asked = {"expression": script, "returnByValue": True, "awaitPromise": True}
        answer = self.call("Runtime.evaluate", **asked)
        if "exceptionDetails" in answer:
            raise AssertionError(answer["exceptionDetails"])
        return answer["result"].get("value")

    def press(self, key: str) -> None:
        for kind in ("keyDown", "keyUp"):
            self.call("Input.dispatchKeyEvent", type=kind, key=key, **KEYS.get(key, {}))

    def call(self, method: str, **given: Any) -> dict[str, Any]:
        self._last += 1
        sent = {"id": self._last, "method": method, "params": given}
        session = {"sessionId": self._session} if self._session else {}
        os.write(self._commands, json.dumps({**sent, **session}).encode() + b"\0")
        while True:
            message = self._next()
            if message.get("id") == self._last:
                if "error" in message:
                    raise AssertionError(message["error"])
                return message["result"]
            self._heard(message)

    def _next(self) -> dict[str, Any]:
        while b"\0" not in self._rest:
            ready, _, _ = select([self._answers], [], [], PATIENCE)
            content = os.read(self._answers, 1 << 20) if ready else b""
            if not content:
                raise TimeoutError("Chromium does not answer")
            self._rest += content
        message, _, self._rest = self._rest.partition(b"\0")
        return json.loads(message)

    def _heard(self, message: dict[str, Any]) -> None:
        given = message.get("params", {})
        match message.get("method"):
            case "Runtime.exceptionThrown":
                self.complaints.append(json.dumps(given["exceptionDetails"]))
            case "Runtime.consoleAPICalled":
                self.complaints.append(json.dumps(given["args"]))
            case "Log.entryAdded":
                self.complaints.append(given["entry"]["text"])
            case "Page.javascriptDialogOpening":
                self.complaints.append(f"dialog: {given['message']}")
            case "Network.requestWillBeSent":
                self.requests.append(given["request"]["url"])
            case _:
                pass


KEYS = {
    "Enter": {"windowsVirtualKeyCode": 13, "text": "\r"},
    "ArrowDown": {"windowsVirtualKeyCode": 40},
    "ArrowRight": {"windowsVirtualKeyCode": 39},
    "Escape": {"windowsVirtualKeyCode": 27},
}


@contextmanager
def browser(folder: Path) -> Iterator[Page]:
    """A browser whose profile is in the folder; ended with the block."""
    ours, theirs = os.pipe(), os.pipe()
    # High numbers, so that neither is in the way of 3 and 4.
    child = [fcntl.fcntl(end, fcntl.F_DUPFD, 10) for end in (ours[0], theirs[1])]
    command = [sys.executable, "-c", _START, *map(str, child), str(found()), *FLAGS]
    process = subprocess.Popen(  # noqa: S603 - the browser of this machine
        [*command, f"--user-data-dir={folder}", "about:blank"],
        pass_fds=child,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        env={**os.environ, "HOME": str(folder)},
    )
    for end in (ours[0], theirs[1], *child):
        os.close(end)
    try:
        yield Page(ours[1], theirs[0])
    finally:
        process.terminate()
        process.wait(PATIENCE)
        os.close(ours[1])
        os.close(theirs[0])
