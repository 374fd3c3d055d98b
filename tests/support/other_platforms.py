"""Runs `audit` without what another platform's Python lacks: `python other_platforms.py NAME ...`.

The names are taken from `os` before the package is imported, so that a use at import fails too.
statvfs stays: shutil, which is a part of Python, calls it here and something else on Windows.
"""

import os
import sys

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


def _become(platform: str) -> None:
    for name in LACKING[platform]:
        if hasattr(os, name):
            delattr(os, name)
    if platform == "windows":
        sys.modules["fcntl"] = None  # type: ignore[assignment]
        os.supports_follow_symlinks.discard(os.link)


if __name__ == "__main__":
    _become(sys.argv[1])
    sys.argv[1:2] = []
    from auditor.cli import main

    main()
