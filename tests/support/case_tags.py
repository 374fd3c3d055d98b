"""What YAML cannot say of a case's files: the tags of cases, such as `!repeat` and `!link`."""

import json
import os
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

import yaml
from support.builders import framed

POINTER = (
    "version https://git-lfs.github.com/spec/v1\n"
    "oid sha256:4d7a214614ab2935c943f9e0ff69d22eadbb8f32b1258daaa5e2ca24d17e2393\n"
    "size 411553788\n"
)
PAGE = "<!DOCTYPE html>\n<html><head><title>404</title></head><body>Not found</body></html>\n"

Make = Callable[[Path], Any]  # makes, or changes, what lies at a path


class Loader(yaml.SafeLoader):
    """YAML with the tags of this module."""


def _of_list(build: Callable[..., Any]) -> Callable[[Loader, Any], Any]:
    return lambda loader, node: build(*loader.construct_sequence(node, deep=True))


def _of_text(build: Callable[[str], Any]) -> Callable[[Loader, Any], Any]:
    return lambda loader, node: build(loader.construct_scalar(node))


def cut(count: int) -> Make:
    """Cut off the last bytes of the file that is there."""
    return lambda path: path.write_bytes(path.read_bytes()[:-count])


def grown(size: int) -> Make:
    """Give the file that is there, or a new one, a size; what is added takes no space."""

    def make(path: Path) -> None:
        path.touch()
        os.truncate(path, size)

    return make


def linked(target: str) -> Make:
    return _instead(lambda path: path.symlink_to(target))


def _instead(make: Make) -> Make:
    """Make something in the place of what is there."""

    def make_instead(path: Path) -> None:
        path.unlink(missing_ok=True)
        make(path)

    return make_instead


def bind_socket(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as listening:
        here = Path.cwd()
        os.chdir(path.parent)  # the address of a socket has some hundred bytes
        try:
            listening.bind(path.name)
        finally:
            os.chdir(here)


_OTHERS: dict[str, Make] = {
    "fifo": os.mkfifo,
    "folder": Path.mkdir,
    "socket": bind_socket,
    "gone": lambda _: None,
}


def header_changed(changes: dict[str, Any]) -> Make:
    """Change entries of the header of the safetensors file that is there."""

    def make(path: Path) -> None:
        content = path.read_bytes()
        end = 8 + int.from_bytes(content[:8], "little")
        header = json.loads(content[8:end])
        for name, values in changes.items():
            header[name] = {**header.get(name, {}), **values}
        path.write_bytes(framed(json.dumps(header), content[end:]))

    return make


def header_begun(text: str) -> Make:
    """Write text before the first tensor of a header."""

    def make(path: Path) -> None:
        content = path.read_bytes()
        end = 8 + int.from_bytes(content[:8], "little")
        header = content[8:end].decode()
        path.write_bytes(framed("{" + text + "," + header[1:], content[end:]))

    return make


Loader.add_constructor("!repeat", _of_list(lambda text, count: text * count))
Loader.add_constructor("!join", _of_list(lambda *parts: "".join(parts)))
Loader.add_constructor("!power", _of_list(pow))
Loader.add_constructor(
    "!keys", _of_list(lambda count, value: {f"k{n}": value for n in range(count)})
)
Loader.add_constructor(
    "!copies", _of_list(lambda count, value: [{**value, "path": str(n)} for n in range(count)])
)
Loader.add_constructor("!bytes", _of_text(lambda text: text.encode("latin-1")))
Loader.add_constructor("!cut", _of_text(lambda text: cut(int(text))))
Loader.add_constructor("!grown", _of_text(lambda text: grown(int(text))))
Loader.add_constructor("!link", _of_text(linked))
Loader.add_constructor("!special", _of_text(lambda kind: _instead(_OTHERS[kind])))
Loader.add_constructor("!text", _of_text({"pointer": POINTER, "page": PAGE}.__getitem__))
Loader.add_constructor("!framed", _of_list(framed))
Loader.add_constructor("!begun", _of_list(header_begun))
Loader.add_constructor(
    "!header", lambda loader, node: header_changed(loader.construct_mapping(node, deep=True))
)


def put(path: Path, content: Any) -> None:
    """Write the content of a file of a case, or make what its tag stands for."""
    path.parent.mkdir(parents=True, exist_ok=True)
    match content:
        case str():
            path.write_text(content)
        case bytes():
            path.write_bytes(content)
        case _ if callable(content):
            content(path)
        case _:
            path.write_text(json.dumps(content))
