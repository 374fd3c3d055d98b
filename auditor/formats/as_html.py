"""--format html: one page a reviewer can keep, that needs no network and trusts no name.

It is readable without JavaScript, which only filters the list of tensors. The policy in its head
lets nothing run or load but its own style and script, by their digests.
"""

from base64 import b64encode
from collections.abc import Iterator, Mapping, Sequence
from hashlib import sha256
from importlib.resources import files as resources
from xml.etree.ElementTree import Element

from auditor.findings import Finding, Severity
from auditor.formats import View, verdict
from auditor.formats.as_json import modules_object
from auditor.formats.icicle import Cell, cells, icicle
from auditor.formats.markup import Child, code, element, html, scrolled, table, verbatim
from auditor.formats.meanings import kind_meanings
from auditor.formats.module_tree import module_tree, modules_of
from auditor.formats.tensor_list import tensor_list
from auditor.formats.text import counted
from auditor.formats.verdict import address
from auditor.reconciler.fold import fold
from auditor.report import Diagnosis, Report, Unaudited

_MOST_PATTERNS = 500  # folded names of one finding; findings.csv has all of them


def files(outcomes: Sequence[Report | Unaudited], _view: View) -> Mapping[str, str]:
    """One page of all models, one after the other."""
    names = ", ".join(outcome.model or outcome.requested for outcome in outcomes)
    style = _text("palette.css") + _text("page.css")
    body = element("main", {}, *(_model(outcome) for outcome in outcomes))
    filtered = body.find(".//details[@class='tensors']") is not None
    script = _text("tensor_list.js") if filtered else ""
    head = element(
        "head",
        {},
        element("meta", {"charset": "utf-8"}),
        element(
            "meta",
            {"http-equiv": "Content-Security-Policy", "content": content_policy(style, script)},
        ),
        element("meta", {"name": "viewport", "content": "width=device-width, initial-scale=1"}),
        element("title", {}, f"Audit of {names[:200]}"),
        verbatim("style", style),
    )
    read = [one.values for outcome in outcomes for one in outcome.every if one.values]
    sampled = any(one.sampled for one in read)
    numbers = "headers and a sample of the numbers." if sampled else "headers and numbers."
    what = numbers if read else "headers alone; no weight was read."
    made_by = element("footer", {}, f"Made by hf-audit from {what}")
    filtering = verbatim("script", script) if script else None
    page = element("html", {"lang": "en"}, head, element("body", {}, body, made_by, filtering))
    return {"report.html": html(page)}


def _text(name: str) -> str:
    return (resources(__package__) / "template" / name).read_text(encoding="ascii")


def content_policy(style: str, script: str) -> str:
    """Nothing loads and nothing runs but a page's own style, and its script where it has one."""
    texts = {"style": style, "script": script}
    digests = {what: b64encode(sha256(text.encode()).digest()) for what, text in texts.items()}
    allowed = [f"{what}-src 'sha256-{digests[what].decode()}'" for what in texts if texts[what]]
    parts = ["default-src 'none'", *allowed, "base-uri 'none'", "form-action 'none'"]
    return "; ".join(parts)


def _model(outcome: Report | Unaudited) -> Element:
    article = element("article", {}, *_heading(outcome), *map(_cause, outcome.diagnosis))
    sections = (_modules, _findings, _tensors, _config, _files)
    for section in sections:
        article.extend(section(outcome))
    article.extend(_sentences("Not checked", outcome.unchecked))
    article.extend(_sentences("Notes", outcome.notes))
    return article


def _heading(outcome: Report | Unaudited) -> Iterator[Element]:
    name = outcome.model or outcome.requested
    link = address(outcome)
    yield element("h1", {}, element("a", {"href": link}, name) if link else name)
    facts = [
        f"commit {outcome.commit[:12]}" if outcome.commit else "",
        outcome.target or "",
        outcome.origin or "",
    ]
    yield element("p", {"class": "sub"}, " \N{MIDDLE DOT} ".join(filter(None, facts)))
    word, _ = verdict.word(outcome)
    strong = element("strong", {"class": outcome.verdict}, word)
    yield element("p", {"class": "verdict"}, strong, " ", verdict.sentence(outcome))
    yield element("p", {"class": "sub"}, verdict.account(outcome))


def _cause(one: Diagnosis) -> Element:
    return element(
        "section",
        {"class": f"card {one.severity}"},
        element("h2", {}, f"Why: {one.cause}"),
        element("p", {}, one.summary),
        element("p", {}, element("strong", {}, "Fix: "), one.fix),
    )


def _scrolled(what: str, outcome: Report | Unaudited, inner: Element) -> Element:
    """A table that may be wider than a phone; of several models each has a label of its own."""
    return scrolled(f"{what} of {outcome.model or outcome.requested}", inner)


# --- modules ------------------------------------------------------------------------------------


def _modules(outcome: Report | Unaudited) -> Iterator[Element]:
    tree = module_tree(modules_of(modules_object(outcome)))
    if tree is None:
        return
    placed = cells(tree)
    formulas = {row.prefix: row.formula for row in outcome.modules}
    yield element("h2", {}, "Where the parameters are")
    yield icicle(placed, "Modules, as wide as their parameters; the table below says the same")
    yield _legend(placed)
    columns = {"module": False, "modules": True, "stored": True, "expected": True}
    columns |= {"share": True, "status": False, "formula of one": False}
    whole = placed[0].stored or 0
    rows = (_module_row(cell, whole, formulas) for cell in placed)
    head = element("summary", {}, "Modules as a table")
    yield element("details", {}, head, _scrolled("Modules", outcome, table(columns, rows)))


def _module_row(cell: Cell, whole: int, formulas: Mapping[str, str | None]) -> tuple[Child, ...]:
    share = "" if cell.stored is None or not whole else f"{cell.stored / whole:.1%}"
    return (
        code(cell.shown),
        f"{cell.modules:,}",
        _count(cell.stored),
        _count(cell.expected),
        share,
        cell.status,
        code((formulas.get(cell.first) or "") if cell.first is not None else ""),
    )


def _count(figure: int | None) -> str:
    return "" if figure is None else f"{figure:,}"


def _legend(placed: Sequence[Cell]) -> Element:
    """The statuses that are drawn, each with its colour."""
    shown = element("ul", {"class": "legend"})
    for status in sorted({cell.drawn_as for cell in placed}):
        colour = element("rect", {"width": "100%", "height": "100%", "class": f"s-{status}"})
        square = element("svg", {"class": "icicle", "aria-hidden": "true"}, colour)
        shown.append(element("li", {}, square, status))
    return shown


# --- findings -----------------------------------------------------------------------------------


def _findings(outcome: Report | Unaudited) -> Iterator[Element]:
    if not any(one.findings or one.ignored for one in outcome.every):
        return
    yield element("h2", {}, "Findings")
    for one in outcome.every:
        if one.component is not None and (one.findings or one.ignored):
            yield element("h3", {}, one.component)
        explained = {at for cause in one.diagnosis for at in cause.findings}
        for severity in Severity:
            for at, finding in enumerate(one.findings):
                if finding.severity is severity:
                    yield _finding(finding, explained=at in explained)
        yield from (_finding(finding, ignored=True) for finding in one.ignored)


def _finding(finding: Finding, *, explained: bool = False, ignored: bool = False) -> Element:
    """A finding with its names; folded unless it alarms and no cause explains it."""
    alarms = finding.severity is not Severity.INFO and not ignored
    kind = f"{'ignored ' if ignored else ''}{finding.severity}: {finding.kind}"
    about = [finding.file or ""]
    about += [counted(finding.count, "name")] if finding.names else []
    about += [counted(finding.parameters, "parameter")] if finding.parameters else []
    folded = fold(finding.names)
    names = element("ul", {"class": "names"})
    for pattern in folded[:_MOST_PATTERNS]:
        names.append(element("li", {}, code(pattern)))
    if len(folded) > _MOST_PATTERNS:
        names.append(element("li", {}, f"and {len(folded) - _MOST_PATTERNS:,} more"))
    look = f"kind {finding.severity}" if alarms else None
    return element(
        "details",
        {"open": "open" if alarms and not explained else None},
        element(
            "summary",
            {},
            element("strong", {"class": look}, kind),
            element("span", {"class": "badge"}, ", ".join(filter(None, about))),
        ),
        element("p", {}, finding.reason),
        names if folded else None,
        element("p", {"class": "sub"}, *_to_do(finding)),
    )


def _to_do(finding: Finding) -> Iterator[Child]:
    """Yield the advice, with text in backticks as code."""
    place = (finding.kind, finding.severity)
    (said,) = (one.to_do for one in kind_meanings() if (one.name, one.severity) == place)
    for at, part in enumerate(said.split("`")):
        yield code(part) if at % 2 else part


def _tensors(outcome: Report | Unaudited) -> Iterator[Element]:
    """The tensors of the model, or of each of those that it is made of."""
    lists = [(one.component, tensor_list(one)) for one in outcome.every]
    if any(found is not None for _, found in lists):
        yield element("h2", {}, "Tensors")
    for component, found in lists:
        if found is not None:
            if component is not None:
                yield element("h3", {}, component)
            yield found


# --- config and files ---------------------------------------------------------------------------


def _config(outcome: Report | Unaudited) -> Iterator[Element]:
    """The keys that shape tensors, what the config says, and what the files hold instead."""
    if outcome.expected is None or not outcome.expected.legend:
        return
    fields = {key: (said, held) for one in outcome.diagnosis for key, said, held in one.fields}
    columns = {"key": False, "letter": False, "value": True}
    columns |= {"the files hold": True} if fields else {}
    rows: list[list[Child]] = []
    for symbol in outcome.expected.legend:
        default = " (the class's default)" if symbol.default else None
        key = element("span", {}, code(symbol.key), default)
        held = [f"{fields.pop(symbol.key, ('', ''))[1]}"] if "the files hold" in columns else []
        rows.append([key, symbol.letter, f"{symbol.value:,}", *held])
    for name, (said, found) in fields.items():  # keys that shape no tensor by the formulas
        rows.append([code(name), "", f"{said}", f"{found}"])
    yield element("h2", {}, "Config")
    yield _scrolled("Config", outcome, table(columns, rows))
    formula = code(outcome.expected.formula)
    yield element("p", {"class": "sub"}, "Parameters of the whole: ", formula)


def _files(outcome: Report | Unaudited) -> Iterator[Element]:
    if outcome.observed is None or not outcome.observed.by_file:
        return
    columns = {"file": False, "bytes": True, "tensors": True, "parameters": True}
    rows = (
        (
            _linked(outcome, one.name),
            _count(one.size),
            f"{one.tensors:,}",
            _count(one.parameters),
        )
        for one in outcome.observed.by_file
    )
    yield element("h2", {}, "Files")
    yield _scrolled("Files", outcome, table(columns, rows))


def _linked(outcome: Report | Unaudited, file: str) -> Child:
    link = address(outcome, file)
    return element("a", {"href": link}, file) if link else file


def _sentences(heading: str, texts: Sequence[str]) -> Iterator[Element]:
    if texts:
        yield element("h2", {}, heading)
        yield element("ul", {}, *(element("li", {}, text) for text in texts))
