"""Runs `audit` without what another platform's Python lacks: `python other_platforms.py NAME ...`.

The names are taken from `os` before the package is imported, so that a use at import fails too.
statvfs stays: shutil, which is a part of Python, calls it here and something else on Windows.
"""

import os
import sys
from types import SimpleNamespace
from typing import Any, Self

_EXTENDED = ("listxattr", "getxattr", "setxattr", "removexattr")
LACKING = {
    "windows": (
        *_EXTENDED,
        *("O_DIRECTORY", "O_NOFOLLOW", "O_CLOEXEC"),
        *("fchmod", "fchown", "chown", "lchown", "getuid", "geteuid"),
        *("pwrite", "pwritev", "copy_file_range", "sendfile"),
    ),
    "macos": (*_EXTENDED, "copy_file_range"),
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


def _become(platform: str) -> None:
    for name in LACKING[platform]:
        if hasattr(os, name):
            delattr(os, name)
    if platform == "windows":
        sys.modules["fcntl"] = None  # type: ignore[assignment]
        os.supports_follow_symlinks.discard(os.link)
        os.scandir = _Scan


if __name__ == "__main__":
    _become(sys.argv[1])
    sys.argv[1:2] = []
    from auditor.cli import main

    main()
