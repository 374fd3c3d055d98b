"""Hostile files beside the weights of a sound model: a folder for each."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path

from support.bad_input.making import whole

_MIB = 1024 * 1024
Writer = Callable[[Path], object]


def beside() -> Iterator[tuple[str, Callable[[Path], Path]]]:
    """Name of each, and what writes its folder."""
    for name, (file, content) in _SMALL.items():
        yield name, _folder(file, lambda path, content=content: path.write_bytes(content()))
    for name, (file, write) in _LARGE.items():
        yield name, _folder(file, write)

    for name, write in _SEVERAL.items():
        yield name, _folder(".", write)


def _folder(file: str, write: Writer) -> Callable[[Path], Path]:
    def make(place: Path) -> Path:
        folder = whole(place / "model")
        write(folder / file)
        return folder

    return make


def _tokens(path: Path) -> None:
    """200 MB of added tokens and vocabulary."""
    with path.open("wb") as file:
        file.write(b'{"version": "1.0", "added_tokens": [')
        file.write(b",".join(_token(at) for at in range(2_000)))
        file.write(b'], "model": {"type": "BPE", "vocab": {"a": 0')
        for start in range(0, 10_000_000, 100_000):
            file.write(
                b"".join(b', "t%07d": %d' % (at, at) for at in range(start, start + 100_000))
            )
        file.write(b"}}}")


def _token(at: int) -> bytes:
    return json.dumps({"id": at, "content": f"<{at}>", "special": True}).encode()


def _just_read(path: Path) -> None:
    """As many short entries as fit into what is read whole."""
    entries = b",".join(b'"%d":%d' % (at, at) for at in range(2_300_000))
    path.write_bytes(b'{"added_tokens":[],"model":{"vocab":{' + entries[: 39 * _MIB] + b"}}}")


def _vocabularies(folder: Path) -> None:
    """One of every format, each as long as may be."""
    entries = b"{" + b",".join(b'"%d":%d' % (at, at) for at in range(990_000)) + b"}"
    (folder / "vocab.json").write_bytes(entries)
    (folder / "tokenizer.json").write_bytes(b'{"added_tokens":[],"model":{"vocab":%s}}' % entries)
    for name in ("tokenizer.model", "spiece.model", "spm.model"):
        (folder / name).write_bytes(b"\x0a\x03\x0a\x01a" * 490_000)
    for number in range(6):
        ranks = b"".join(b"YQ== %d\n" % at for at in range(900_000))
        (folder / f"{number}.tiktoken").write_bytes(ranks)


def _added(folder: Path) -> None:
    """A thousand added tokens, none of which is in a long vocabulary."""
    named = {str(at): {"content": f"<extra_{at}>"} for at in range(1_038)}
    config = {"added_tokens_decoder": named}
    (folder / "tokenizer_config.json").write_text(json.dumps(config))
    entries = b"{" + b",".join(b'"word%d":%d' % (at, at) for at in range(200_000)) + b"}"
    (folder / "vocab.json").write_bytes(entries)
    (folder / "vocab.txt").write_bytes(b"word\n" * 700_000)
    (folder / "spm.model").write_bytes(b"\x0a\x03\x0a\x01a" * 490_000)


def _poolings(folder: Path) -> None:
    for number in range(300):
        place = folder / f"{number}_Pooling"
        place.mkdir()
        (place / "config.json").write_bytes(b'{"x": "%s"}' % (b"a" * _MIB))


def _templates(folder: Path) -> None:
    """As many as fit into tokenizer_config.json, each as long as may be."""
    text = "{{ [" + "1," * 24_000 + "1] }}"
    each = [{"name": f"{number}", "template": f"{text}{number}"} for number in range(80)]
    (folder / "tokenizer_config.json").write_text(json.dumps({"chat_template": each}))


def _keys(folder: Path) -> None:
    place = folder / "config.json"
    said = json.loads(place.read_text())
    place.write_text(json.dumps({**said, **{f"num_hidden_layr{at}": 1 for at in range(70_000)}}))


_SEVERAL: dict[str, Writer] = {
    "vocabularies of every format": _vocabularies,
    "modules with settings of 300 MB": _poolings,
    "80 long templates": _templates,
    "1,038 added tokens": _added,
    "70,000 unknown keys": _keys,
}

_LARGE: dict[str, tuple[str, Writer]] = {
    "a tokenizer.json of 200 MB": ("tokenizer.json", _tokens),
    "two million entries": ("tokenizer.json", _just_read),
    "40 MB of one string": (
        "tokenizer.json",
        lambda path: path.write_bytes(b'{"a": "' + b"x" * (39 * _MIB)),
    ),
    "40 MB of brackets": ("tokenizer.json", lambda path: path.write_bytes(b"[" * (39 * _MIB))),
    "40 MB of empty pieces": (
        "tokenizer.model",
        lambda path: path.write_bytes(b"\x0a\x00" * (19 * _MIB)),
    ),
    "40 MB of escapes": (
        "vocab.json",
        lambda path: path.write_bytes(b'{"' + b'\\"' * (19 * _MIB) + b'": 1}'),
    ),
}

_SMALL: dict[str, tuple[str, Callable[[], bytes]]] = {
    "nesting of 100,000": ("tokenizer.json", lambda: b'{"added_tokens": ' + b"[" * 100_000),
    "a config nested as deep": ("tokenizer_config.json", lambda: b'{"a":' * 100_000),
    "an id of 2**63": ("tokenizer.json", lambda: b'{"added_tokens": [%s]}' % _token(2**63)),
    "an id of 4,000 digits": (
        "tokenizer.json",
        lambda: b'{"added_tokens": [{"id": ' + b"9" * 4000 + b', "content": ""}]}',
    ),
    "a special id of 4,000 digits": (
        "generation_config.json",
        lambda: b'{"eos_token_id": ' + b"9" * 4000 + b"}",
    ),
    "a special id of 2**63": ("generation_config.json", lambda: b'{"eos_token_id": %d}' % 2**63),
    "loops over 10**9": (
        "chat_template.jinja",
        lambda: b"{% for a in range(10**9) %}" * 20 + b"{{ a }}" + b"{% endfor %}" * 20,
    ),
    "a power": ("chat_template.jinja", lambda: b"{{ 9**9**9**9**9 }}{{ 'a' * 10**10 }}"),
    "open braces": ("chat_template.jinja", lambda: b"{" * 49_000),
    "nested blocks": ("chat_template.jinja", lambda: b"{% if a %}" * 4_900),
    "nested brackets": ("chat_template.jinja", lambda: b"{{ " + b"(" * 49_000),
    "open comments in a tag": ("chat_template.jinja", lambda: b"{{ " + b"{#" * 24_000),
    "a literal": ("chat_template.jinja", lambda: b"{{ " + b"9" * 49_000 + b" }}"),
    "a list of literals": ("chat_template.jinja", lambda: b"{{ [" + b"1," * 24_000 + b"1] }}"),
    "a long template": ("chat_template.jinja", lambda: b"{{ a }}" * 500_000),
    "no text": ("chat_template.jinja", lambda: b"\xff\xfe" * 1000),
    "a length that lies": ("tokenizer.model", lambda: b"\x0a\xff\xff\xff\xff\x7f" + b"a" * 100),
    "a number without an end": ("tokenizer.model", lambda: b"\x0a" + b"\xff" * 1000),
}
