"""Runs `audit` without what another platform lacks: `python other_platform.py PLATFORM ARGS...`.

Names are taken from `os` and `signal`, and modules cannot be imported. statvfs stays: shutil calls
it here and something else on Windows. Other paths, encodings, line ends and file systems are not
tried.
"""

import contextlib
import os
import signal
import subprocess  # noqa: F401 - the standard library chose its form for this platform
import sys
import tempfile  # noqa: F401 - likewise
import threading  # noqa: F401 - likewise
from types import SimpleNamespace
from typing import Any, Self

with contextlib.suppress(ImportError):
    import numpy as np  # noqa: F401 - likewise

POSIX = """
    fork forkpty register_at_fork getuid geteuid getgid getegid getpgid getppid killpg setsid
    mkfifo chown lchown fchown fchmod pread preadv pwrite pwritev sendfile readv
    writev uname getloadavg sysconf WNOHANG waitid O_NOFOLLOW O_DIRECTORY O_CLOEXEC O_NONBLOCK
    O_NOCTTY O_SYNC SEEK_DATA SEEK_HOLE openpty ttyname
"""
LINUX = """
    sched_getaffinity sched_setaffinity posix_fadvise posix_fallocate copy_file_range splice
    O_DIRECT O_PATH O_TMPFILE O_NOATIME listxattr getxattr setxattr memfd_create eventfd preadv
    pwritev pidfd_open getrandom
"""
SIGNALS = """
    SIGHUP SIGALRM SIGKILL SIGPIPE SIGUSR1 SIGUSR2 SIGCHLD SIGQUIT alarm setitimer getitimer
    pthread_sigmask pthread_kill sigwait pause
"""
LACKING = {
    "windows": (f"{POSIX} {LINUX}".split(), SIGNALS.split()),
    "macos": (LINUX.split(), []),
    "linux": ([], []),
}
# Without ctypes no call of Linux's library is to be had.
MODULES = {
    "windows": ("ctypes", "fcntl", "resource", "pwd", "grp", "termios", "tty", "pty"),
    "macos": ("ctypes",),
}


class _Scan:
    """os.scandir as it is on Windows, whose entries know neither inode nor number of links."""

    def __init__(self, *args: Any, real: Any = os.scandir) -> None:
        self._entries = real(*args)

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> "_Entry":
        return _Entry(next(self._entries))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._entries.close()


class _Entry:
    def __init__(self, entry: os.DirEntry) -> None:
        self._entry = entry

    def __getattr__(self, name: str) -> Any:
        return getattr(self._entry, name)

    def stat(self, **options: bool) -> SimpleNamespace:
        status = self._entry.stat(**options)
        fields = {name: getattr(status, name) for name in dir(status) if name.startswith("st_")}
        return SimpleNamespace(**{**fields, "st_ino": 0, "st_nlink": 0})


def take_away(platform: str) -> None:
    """Take from this process the names and modules that the platform lacks."""
    names_of_os, names_of_signal = LACKING[platform]
    for module, names in ((os, names_of_os), (signal, names_of_signal)):
        for name in names:
            if hasattr(module, name):
                delattr(module, name)
    for name in MODULES.get(platform, ()):
        sys.modules[name] = None  # type: ignore[assignment]
    if platform == "windows":
        os.supports_follow_symlinks.discard(os.link)
        os.scandir = _Scan


if __name__ == "__main__":
    take_away(sys.argv[1])
    del sys.argv[1]
    from auditor.cli import main

    main()
