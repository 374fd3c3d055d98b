"""index.html: a night on one page that needs no network, and trusts no name.

The page is a template and three blocks of JSON: a row a model, and what rows share (findings,
trees of modules), each kept once. The script shows what is in them as text. The policy in the
page's head lets nothing run or load but its own script and style, by their digests.
"""

import json
import tempfile
from base64 import b64encode
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from hashlib import sha256
from importlib.resources import files
from shutil import copyfileobj
from string import Template
from typing import IO, Any, Self

from auditor.formats.csv_rows import Outcome, object_at
from auditor.formats.module_tree import module_tree, modules_of
from auditor.formats.text import printable
from auditor.sweep.reporting.changes import Change, Finding, Matched
from auditor.sweep.reporting.heading import heading
from auditor.sweep.reporting.model_entry import ALARMING, ModelEntry, ModelState

# Beyond this number the page leaves out models that are clean and unchanged; models.csv has them.
# With 20,000, no two trees alike, it has 18.5 MB, and Chromium shows it in 1.1 s on two cores.
MOST_MODELS = 20_000
MOST_FINDINGS = 30  # of one model; findings.csv has all of them
_MOST_PATTERNS = 8
_LONGEST_NAME = 200
_LONGEST_TEXT = 400

STATES = tuple(ModelState)
SEVERITIES = (*ALARMING, "info")
CHANGES = (Change.NEW, Change.CHANGED, Change.STILL_OPEN, Change.FIXED, Change.UNSEEN)


class NightPage:
    """Collects the models of a night, and writes the page at the end; a context manager."""

    def __init__(self, models: int) -> None:
        self._all = models <= MOST_MODELS
        self._shown = self._left_out = 0
        with ExitStack() as stack:
            self._models = stack.enter_context(Block())
            self._findings = stack.enter_context(Pool())
            self._trees = stack.enter_context(Pool())
            self._stack = stack.pop_all()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def add(self, judged: ModelEntry) -> None:
        if judged.outcome is None or judged.state is None:
            return
        quiet = judged.state in {ModelState.CLEAN, ModelState.ACCEPTED} and not judged.moves
        if not self._all and (quiet or self._shown >= MOST_MODELS):
            self._left_out += 1
            return
        self._shown += 1
        self._models.add(self._row(judged, judged.outcome, judged.state))

    def _row(self, judged: ModelEntry, outcome: Outcome, state: ModelState) -> list[Any]:
        """What the table shows of a model, and where to find the rest; page.js names the places."""
        severities = [match.finding["severity"] for match, _ in judged.standing]
        alarming = [match for match in judged.matches if match.finding["severity"] in ALARMING]
        both = sorted(zip(judged.matches, judged.accepted, strict=True), key=_weight)
        found = [
            [
                self._findings.place(_finding(match.finding)),
                CHANGES.index(match.change),
                0 if why is None else _short(why),
            ]
            for match, why in both[:MOST_FINDINGS]
        ]
        return [
            _name(judged.model),
            STATES.index(state),
            _short(outcome.get("reason")),
            _name(outcome.get("target")),
            _name(outcome.get("model_type")),
            object_at(outcome, "observed").get("parameters"),
            object_at(outcome, "expected").get("parameters"),
            *(severities.count(severity) for severity in SEVERITIES),
            sum(match.change is Change.NEW for match in alarming),
            sum(match.change is Change.FIXED for match in alarming),
            [
                [_short(move[name]) for name in ("change", "kind", "before", "after")]
                for move in judged.moves
            ],
            _name(outcome.get("commit")),
            found,
            len(judged.matches) - len(found),
            self._tree(outcome),
            _short(outcome.get("detail")),
            [_cause(match) for match in judged.why if match.tonight is not None],
        ]

    def _tree(self, outcome: Outcome) -> int:
        """Where the model's tree is; -1: it has none. Alike models share one, drawn once."""
        modules = modules_of(outcome)
        if not modules:
            return -1
        expected = object_at(outcome, "expected")
        formula, by = _short(expected.get("formula")), expected.get("by") or ""
        key = json.dumps([modules, formula, by]).encode()
        return self._trees.place([formula, by], key, lambda: [module_tree(modules)])

    def write(self, file: IO[bytes], summary: Mapping[str, Any], pages: Mapping[str, str]) -> None:
        """The whole page; `summary` is the content of summary.json, `pages` those of models."""
        style, script = _text("page.css"), _text("page.js") + _text("icicle.js")
        values = {
            "policy": _policy(style, script),
            "style": style,
            "script": script,
            "states": ascii_json([*STATES]),
            "severities": ascii_json([*SEVERITIES]),
            "changes": ascii_json([*CHANGES]),
            # By the names of the rows, but for what is cut or written out in them.
            "pages": ascii_json({one: pages[one] for one in pages if _name(one) == one}),
            **heading(summary, pages, left_out=self._left_out),
        }
        blocks = {"models": self._models, "findings": self._findings, "trees": self._trees}
        # Cut before it is filled in, so that no name can stand for a block.
        for at, piece in enumerate(_text("page.html").split("@")):
            if at % 2:
                blocks[piece].copy(file)
            else:
                text = Template(piece).substitute(values)
                file.write(text.encode("ascii", "xmlcharrefreplace"))


def _weight(both: tuple[Matched, str | None]) -> tuple[int, bool]:
    """What alarms comes first, and in it what is there before what is gone."""
    match, _ = both
    return SEVERITIES.index(match.finding["severity"]), match.tonight is None


def _cause(match: Matched) -> list[Any]:
    cause = match.finding
    return [
        cause["kind"],
        SEVERITIES.index(cause["severity"]),
        CHANGES.index(match.change),
        _short(cause["reason"]),
        _short(cause["fix"]),
        _name(cause["component"]),
    ]


def _finding(finding: Finding) -> list[Any]:
    patterns = finding["folded"]
    return [
        finding["kind"],
        SEVERITIES.index(finding["severity"]),
        finding["count"],
        finding["parameters"],
        [_name(pattern) for pattern in patterns[:_MOST_PATTERNS]],
        max(0, len(patterns) - _MOST_PATTERNS),
        _short(finding["reason"]),
        _name(finding.get("file") or finding.get("component")),
    ]


def _name(text: str | None) -> str:
    return _cut(text, _LONGEST_NAME)


def _short(text: Any) -> Any:
    """Text cut to what a page has room for; numbers as they are."""
    return _cut(text, _LONGEST_TEXT) if isinstance(text, str | None) else text


def _cut(text: str | None, most: int) -> str:
    shown = printable(text or "")
    return shown if len(shown) <= most else f"{shown[: most - 1]}\N{HORIZONTAL ELLIPSIS}"


def _text(name: str) -> str:
    return (files(__package__) / "template" / name).read_text(encoding="ascii")


def _policy(style: str, script: str) -> str:
    """Nothing loads and nothing runs but these two."""
    digests = [b64encode(sha256(text.encode()).digest()).decode() for text in (style, script)]
    return (
        f"default-src 'none'; style-src 'sha256-{digests[0]}'; script-src 'sha256-{digests[1]}'; "
        "base-uri 'none'; form-action 'none'"
    )


# --- the blocks of JSON ---------------------------------------------------------------------------


class Block:
    """A JSON array that is written item by item, to an unnamed file until the page is made."""

    def __init__(self) -> None:
        self._file = tempfile.TemporaryFile()  # noqa: SIM115 - closed with the page
        self.length = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()

    def add(self, item: Any) -> int:
        """Add an item; its place."""
        self._file.write(b"[\n" if not self.length else b",\n")
        self._file.write(ascii_json(item).encode("ascii"))
        self.length += 1
        return self.length - 1

    def copy(self, file: IO[bytes]) -> None:
        self._file.write(b"\n]" if self.length else b"[]")
        self._file.seek(0)
        copyfileobj(self._file, file)


class Pool(Block):
    """A JSON array of what many models share: each item once, by a digest of 16 bytes."""

    def __init__(self) -> None:
        super().__init__()
        self._places: dict[bytes, int] = {}

    def place(
        self, item: list[Any], key: bytes | None = None, rest: Callable[[], list[Any]] = list
    ) -> int:
        """The place of an item; `rest` makes what is costly of it, where it is new."""
        digest = sha256(ascii_json(item).encode() if key is None else key).digest()[:16]
        if digest not in self._places:
            self._places[digest] = self.add([*item, *rest()])
        return self._places[digest]


def ascii_json(value: Any) -> str:
    """JSON for a script element: ASCII, and nothing in it ends the element or begins a comment."""
    return json.dumps(value, separators=(",", ":")).replace("<", "\\u003c")
