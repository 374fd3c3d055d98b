"""No output contains the access token, wherever and in whatever form a server repeats it."""

# ruff: noqa: ARG002 (every fault is given request and answer)

import gzip
import html
import json
import os
import random
import re
import sqlite3
import zlib
from base64 import b64decode, b64encode
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from urllib.parse import quote, unquote

import pytest
from support.builders import safetensors_bytes
from support.examples import IS_THOROUGH
from support.hub.faults import Fault
from support.hub.wire import Answer, Request, plain, put
from support.running import run
from support.sweep_models import CONFIG, WEIGHTS, healthy

from auditor import AuditRequest, audit
from auditor.checkpoint.snapshot_writer import dump
from auditor.downloader.fetching import fetch
from auditor.formats import View
from auditor.formats.registry import FORMATS
from auditor.messages import printable
from auditor.redaction import hide, masked

TOKEN = "hf_" + "qWzXvKpLmNbRtYsDfGhJ" + "4927510386wE"

FORMS: dict[str, Callable[[str], str]] = {
    "as it is": str,
    "in a header": lambda token: f"Authorization: Bearer {token}; path=/",
    "in capitals": str.upper,
    "cut off": lambda token: token[:25],
    "in a URL": lambda token: quote(token).replace("_", "%5F"),
    "percent": lambda token: "".join(f"%{ord(char):02X}" for char in token),
    "percent, twice": lambda token: "".join(f"%25{ord(char):02x}" for char in token),
    "Python": lambda token: "".join(f"\\x{ord(char):02x}" for char in token),
    "JSON": lambda token: "".join(f"\\u{ord(char):04x}" for char in token),
    "entities": lambda token: "".join(f"&#{ord(char)};" for char in token),
    "hex": lambda token: token.encode().hex(),
    "a dump": lambda token: token.encode().hex(" "),
    "numbers": lambda token: str(list(token.encode())),
    "base64": lambda token: b64encode(f"Bearer {token}".encode()).decode(),
    "base64 of a user": lambda token: b64encode(f"user:{token}".encode()).decode(),
    "split": lambda token: " ".join(token[at : at + 5] for at in range(0, len(token), 5)),
    "with escapes": lambda token: "\x1b[0m".join((token[:5], token[5:11], token[11:])),
    "with invisible letters": "\u200b".join,
}


def letters(text: str) -> str:
    return re.sub("[^0-9a-z]", "", text.lower())


def leaks(text: str, form: str) -> bool:
    """Whether a text has the token, in this form or in one that a reader can decode."""
    decoded = re.sub(r"\\x([0-9a-fA-F]{2})|\\u00([0-9a-fA-F]{2})", _char, text)
    ways = (text, decoded, unquote(text), unquote(unquote(text)), html.unescape(decoded))
    return any(letters(TOKEN)[:15] in letters(way) for way in ways) or (
        len(letters(form)) > 40 and letters(form)[20:40] in letters(text)
    )


def _char(found: re.Match[str]) -> str:
    return chr(int(found[1] or found[2], 16))


@dataclass(frozen=True, kw_only=True)
class Repeats(Fault):
    """Puts a text into a place of an answer, which the seed chooses."""

    text: str
    place: str

    def bites(self, request: Request, answer: Answer) -> bool:
        if self.place == "a JSON value":
            return "json" in (answer.header("Content-Type") or "") and answer.status == 200
        return True

    def spoil(self, request: Request, answer: Answer) -> Answer:
        body = json.dumps({"error": f"denied: {self.text}"}).encode()
        line = "".join(char if char.isprintable() and char.isascii() else " " for char in self.text)
        address = f"http://{letters(TOKEN)}.invalid/{quote(line)}?token={quote(line)}"
        instead = {
            "the body of a 403": plain(403, body, "application/json"),
            "the page of a 404": plain(404, f"<p>{self.text}".encode(), "text/html"),
            "the body of a 599": plain(599, body, "application/json", ("Retry-After", line)),
            "an address": plain(302, b"", "text/plain", ("Location", address)),
            "a scheme": plain(302, b"", "text/plain", ("Location", f"{letters(TOKEN)}:{line}")),
            "X-Error-Message": plain(403, b"", "text/plain", ("X-Error-Message", line)),
        }
        if self.place in instead:
            return instead[self.place]
        if self.place == "a JSON value":
            content = b"".join(piece for piece in answer.body if isinstance(piece, bytes))
            values = json.loads(content)
            values = values if isinstance(values, dict) else {"list": values}
            values |= {self.text: 1, "sha": self.text, "library_name": self.text}
            values["siblings"] = [{"rfilename": self.text}, *values.get("siblings", [])]
            changed = json.dumps(values).encode()
            headers = put(answer.headers, "Content-Length", str(len(changed)))
            return replace(answer, headers=headers, body=(changed,))
        return replace(answer, headers=put(answer.headers, self.place, line))


PLACES = (
    *("the body of a 403", "the page of a 404", "the body of a 599", "an address", "a scheme"),
    *("a JSON value", "X-Error-Message", "X-Repo-Commit", "ETag", "X-Linked-Etag", "Content-Range"),
    *("Content-Encoding", "X-Error-Code", "RateLimit", "X-Linked-Size", "Link"),
)


def repeating_model(draw: random.Random, text: str):
    """A model of which one name or value is this text."""
    files = healthy(1)
    config = json.loads(files[CONFIG])
    match draw.randrange(8):
        case 0:
            config[text] = 3
        case 1:
            key = draw.choice(["hidden_act", "architectures", "model_type", "_name_or_path"])
            config[key] = [text] if key == "architectures" else text
        case 2:
            files[WEIGHTS] = safetensors_bytes({f"bert.{text}": ("F32", (2, 3))})
        case 3:
            files[f"{text.replace('/', '-')[:200]}.bin"] = text.encode()
        case 4:
            files["generation_config.json"] = json.dumps({"eos_token_id": text}).encode()
        case 5:
            files["tokenizer_config.json"] = json.dumps({"chat_template": text, text: 1}).encode()
        case 6:
            files["README.md"] = f"---\nlicense: {text}\n---\n{text} has 110M parameters\n".encode()
        case 7:
            index = {"metadata": {"total_size": text}, "weight_map": {text: WEIGHTS, "b": text}}
            files["model.safetensors.index.json"] = json.dumps(index).encode()
    return {**files, CONFIG: json.dumps(config).encode()}


def assert_silent(outcome, form):
    """Assert that no format writes the token."""
    for name, write in FORMATS.items():
        for file, text in write([outcome], View(verbose=True)).items():
            assert not leaks(file + text, form), (name, file)


def test_no_format_writes_a_token_that_a_server_repeats(at_hub, subtests):
    for seed in range(400 if IS_THOROUGH else 16):
        with subtests.test(seed=seed):
            at_hub.clear()
            draw = random.Random(seed)  # noqa: S311 - a test's own draw
            form = FORMS[draw.choice(list(FORMS))](TOKEN)
            at_hub.add("o/m", repeating_model(draw, form) if seed % 2 else healthy(1))
            at_hub.grant(TOKEN)
            if not seed % 2:
                path = draw.choice(["*", "*/resolve/*", "*config.json", "/api/*", "*.safetensors"])
                fault = Repeats(text=form, place=draw.choice(PLACES))
                at_hub.misbehave(fault=fault, path=path, times=draw.choice([None, 1]))
            said: list[str] = []
            outcome = audit(AuditRequest(model="o/m", token=TOKEN), say=said.append)
            assert_silent(outcome, form)
            assert not leaks("\n".join(map(printable, said)), form)
            if outcome.verdict != "unaudited":
                snapshot = dump(fetch("o/m", token=TOKEN), "a.json").decode()
                assert not leaks(snapshot, form)
                for packed in re.findall(r'"deflated": "([^"]+)"', snapshot):
                    content = zlib.decompress(b64decode(packed))
                    assert not leaks(content.decode(errors="replace"), form)


@pytest.mark.parametrize("seed", range(24 if IS_THOROUGH else 1))
def test_no_night_and_no_log_contains_the_token(seed, hub, hub_env, tmp_path):
    draw = random.Random(seed)  # noqa: S311 - a test's own draw
    hub.grant(TOKEN)
    forms = []
    for number, name in enumerate(draw.sample([*FORMS], 6)):
        forms.append(FORMS[name](TOKEN))
        hub.add(f"o/m{number}", repeating_model(draw, forms[-1]))
        if number % 2:
            fault = Repeats(text=forms[-1], place=draw.choice(PLACES))
            hub.misbehave(fault=fault, path=f"*o/m{number}*")
    env = {**hub_env, "HF_TOKEN": TOKEN, "HF_HUB_DOWNLOAD_TIMEOUT": "1"}
    logs = [run("sweep", "--author", "o", "--processes", "1", env=env, cwd=tmp_path)]
    del env["HF_TOKEN"]  # the store itself has no token
    logs.append(run("report", "sweep.sqlite", "-o", "night", env=env, cwd=tmp_path))
    env["HF_TOKEN"] = TOKEN
    logs.append(run(*(f"o/m{n}" for n in range(6)), "-vv", env=env, cwd=tmp_path))
    texts = {"log": "".join(log.stdout + log.stderr for log in logs), "store": _dump(tmp_path)}
    for path in (tmp_path / "night").rglob("*"):
        if path.is_file():
            texts[path.name] = path.name + path.read_text(errors="replace")
    assert len(texts) > 8
    for name, text in texts.items():
        assert not [form for form in forms if leaks(text, form)], name


def _dump(folder: Path) -> str:
    """Every value of a store as text, unpacked."""
    with sqlite3.connect(folder / "sweep.sqlite") as database:
        tables = [name for (name,) in database.execute("SELECT name FROM sqlite_master")]
        rows = [row for name in tables for row in _rows(database, name)]
    return "\n".join(_unpacked(value) for row in rows for value in row)


def _rows(database, table):
    try:
        return list(database.execute(f'SELECT * FROM "{table}"'))  # noqa: S608 - a name of the store
    except sqlite3.Error:  # an index
        return []


def _unpacked(value) -> str:
    if not isinstance(value, bytes):
        return str(value)
    for unpack in (zlib.decompress, gzip.decompress, lambda raw: zlib.decompress(raw, -15)):
        try:
            return unpack(value).decode(errors="replace")
        except (zlib.error, OSError, EOFError):
            continue
    return value.decode(errors="replace")


def test_the_password_of_an_endpoint_or_a_proxy_is_not_printed(hub, hub_env):
    secret = "s3cr3tPassw0rd"  # noqa: S105 - of nothing
    hub.add("o/m", healthy(1), gated="auto")
    address = hub.url.replace("//", f"//me:{secret}@")
    for variables in (
        {"HF_ENDPOINT": address},
        {"HF_ENDPOINT": f"ftp://me:{secret}@host"},
        {"HTTP_PROXY": f"nonsense://me:{secret}@host"},
    ):
        done = run("o/m", "-vv", env=hub_env | variables)
        assert done.returncode in {2, 3}
        assert secret not in done.stdout + done.stderr


def test_a_text_without_the_token_stays_as_it_is():
    hide(TOKEN)
    for text in (
        "hf_hub hf_qWz bert.layer.0",
        "\\u0068\\u0066 %68%66_ &#104;",
        os.linesep,
        "é\udcff",
    ):
        assert printable(text) == printable(printable(text))
        assert "*" not in printable(text)
    content = json.dumps({"a": TOKEN, "b": TOKEN * 2}).encode()
    assert len(masked(content)) == len(content)
    assert json.loads(masked(content))["a"] == "*" * len(TOKEN)


def test_a_value_that_is_no_token_hides_no_word(subtests):
    for short in ["", "x", "dummy", "none", "hf_x"]:
        with subtests.test(short=short):
            hide(short)
            assert printable("the dummy none hf_x weight x") == "the dummy none hf_x weight x"
