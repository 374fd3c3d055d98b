"""index.html: a night on one page that needs no network and treats all names as untrusted.

The page is a template and three blocks of JSON: a row for each model, and the findings and module
trees that rows share, each stored once. The script inserts their values as text. The content policy
in the page's head allows only its own script and style, by their digests.
"""

from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from importlib.resources import files
from shutil import copyfileobj
from string import Template
from tempfile import TemporaryFile
from typing import IO, Any

from msgspec import to_builtins

from auditor.formats.as_html import content_policy
from auditor.formats.as_svg import palette
from auditor.formats.document import Document, ExpectedObject, ListedFinding, ObservedObject
from auditor.formats.icicle import patterns
from auditor.formats.markup import element, html_fragment
from auditor.formats.module_tree import (
    KINDS,
    OTHER,
    Node,
    first_module,
    kinds_of,
    module_tree,
    modules_of,
)
from auditor.messages import printable
from auditor.reconciler.rows import ModuleRow
from auditor.sweep.reporting.changes import ALARMING, SEVERITIES, ChangeKind, Matched
from auditor.sweep.reporting.files import JsonArray, ascii_json
from auditor.sweep.reporting.heading import HUB, heading
from auditor.sweep.reporting.model_entry import ModelEntry, ModelState

# If a night has more models, the page leaves out clean and unchanged ones; models.csv has them.
# A page of 20,000 models without shared trees has 18.5 MB; Chromium shows it in 1.1 s on two cores.
MOST_MODELS = 20_000
MOST_FINDINGS = 30  # findings shown of one model; findings.csv has all
_MOST_PATTERNS = 8
_LONGEST_NAME = 200
_LONGEST_TEXT = 400

STATES = tuple(ModelState)
CHANGES = (
    ChangeKind.NEW,
    ChangeKind.CHANGED,
    ChangeKind.STILL_OPEN,
    ChangeKind.FIXED,
    ChangeKind.UNSEEN,
)


class NightPage:
    """A writer of the page: it collects the models of a night in temporary files."""

    def __init__(self, models: int, stack: ExitStack) -> None:
        self._all = models <= MOST_MODELS
        self._shown = self._left_out = 0
        self._models, self._findings, self._trees = (
            JsonArray(stack.enter_context(TemporaryFile()))  # noqa: SIM115 - the stack closes it
            for _ in range(3)
        )

    def add(self, entry: ModelEntry) -> None:
        if entry.state is None:
            return
        quiet = entry.state in {ModelState.CLEAN, ModelState.ACCEPTED} and not entry.moves
        if not self._all and (quiet or self._shown >= MOST_MODELS):
            self._left_out += 1
            return
        self._shown += 1
        self._models.add(self._row(entry))

    def _row(self, entry: ModelEntry) -> list[Any]:
        """Return a model's table row, with indices of shared items; page.js names its columns."""
        outcome = entry.outcome
        severities = [match.tonight.severity for match in entry.matches if match.tonight]
        alarming = [match for match in entry.matches if match.finding.severity in ALARMING]
        shown_findings = [
            [
                self._findings.place(_finding(match.finding)),
                CHANGES.index(match.change),
                0 if match.accepted is None else _short(match.accepted),
            ]
            for match in sorted(entry.matches, key=_weight)[:MOST_FINDINGS]
        ]
        return [
            _name(entry.model),
            STATES.index(entry.state),
            _short(outcome.reason),
            _name(outcome.target),
            _name(outcome.model_type),
            (outcome.observed or ObservedObject()).parameters,
            (outcome.expected or ExpectedObject()).parameters,
            *(severities.count(severity) for severity in SEVERITIES),
            sum(match.change is ChangeKind.NEW for match in alarming),
            sum(match.change is ChangeKind.FIXED for match in alarming),
            [
                [_short(move[name]) for name in ("change", "kind", "before", "after")]
                for move in entry.moves
            ],
            _name(outcome.commit),
            shown_findings,
            len(entry.matches) - len(shown_findings),
            self._tree(outcome),
            _short(outcome.detail),
            [_cause(match) for match in entry.causes if match.tonight is not None],
            _name(entry.pushed),
            _short(entry.authors),
        ]

    def _tree(self, outcome: Document) -> int:
        """Return the index of the model's tree, or -1; models with equal modules share a tree."""
        modules = modules_of(outcome)
        if not modules:
            return -1
        expected = outcome.expected or ExpectedObject()
        texts = [_short(expected.formula), expected.by or ""]
        return self._trees.place(
            [to_builtins(modules), texts], lambda: [*texts, _with_kinds(modules)]
        )

    def write(self, file: IO[bytes], summary: Mapping[str, Any], pages: Mapping[str, str]) -> None:
        """Write the page; `summary` is the content of summary.json, `pages` addresses by model."""
        style, script = palette() + _text("page.css"), _text("page.js") + _text("icicle.js")
        words = {
            "states": STATES,
            "severities": SEVERITIES,
            "changes": CHANGES,
            "kinds": KINDS,
            "hub": HUB,
            # Names in rows are cut and escaped, so only unchanged names can be looked up.
            "pages": {one: pages[one] for one in pages if _name(one) == one},
        }
        values = {
            "policy": content_policy(style, script),
            "style": style,
            "script": script,
            "patterns": html_fragment(element("defs", {}, *patterns())),
            "words": ascii_json(words),
            **heading(summary, pages, left_out=self._left_out),
        }
        blocks = {"models": self._models, "findings": self._findings, "trees": self._trees}
        # The template is split before values are inserted, so that no value can name a block.
        for at, piece in enumerate(_text("page.html").split("@")):
            if at % 2:
                blocks[piece].close()
                blocks[piece].file.seek(0)
                copyfileobj(blocks[piece].file, file)
            else:
                text = Template(piece).substitute(values)
                file.write(text.encode("ascii", "xmlcharrefreplace"))


def _with_kinds(modules: Sequence[ModuleRow]) -> Sequence[Any] | None:
    """Return the module tree as icicle.js reads it: each node with the index of its kind."""
    tree = module_tree(modules)
    kinds = kinds_of(row.prefix for row in modules)

    def row(node: Node, above: str) -> Sequence[Any]:
        path = f"{above}.{node.name}" if above else node.name
        kind = kinds.get(first_module(path), OTHER)
        return [*node[:-1], KINDS.index(kind), [row(child, path) for child in node.below]]

    return tree and row(tree, "")


def _weight(match: Matched) -> tuple[int, bool]:
    """Return a sort key: the worst severity first, then tonight's findings before earlier ones."""
    return SEVERITIES.index(match.finding.severity), match.tonight is None


def _cause(match: Matched) -> list[Any]:
    cause = match.finding
    return [
        cause.kind,
        SEVERITIES.index(cause.severity),
        CHANGES.index(match.change),
        _short(cause.reason),
        _short(cause.fix),
        _name(cause.component),
    ]


def _finding(finding: ListedFinding) -> list[Any]:
    patterns = finding.folded
    return [
        finding.kind,
        SEVERITIES.index(finding.severity),
        finding.count,
        finding.parameters,
        [_name(pattern) for pattern in patterns[:_MOST_PATTERNS]],
        max(0, len(patterns) - _MOST_PATTERNS),
        _short(finding.reason),
        _name(finding.file or finding.component),
    ]


def _name(text: str | None) -> Any:
    return _short(text, _LONGEST_NAME)


def _short(text: Any, most: int = _LONGEST_TEXT) -> Any:
    """Return text cut to `most` characters, "" for None, and any other value unchanged."""
    if not isinstance(text, str | None):
        return text
    line = printable(text or "")
    return line if len(line) <= most else f"{line[: most - 1]}\N{HORIZONTAL ELLIPSIS}"


def _text(name: str) -> str:
    return (files(__package__) / "template" / name).read_text(encoding="ascii")
