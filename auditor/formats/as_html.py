"""--format html: one page that a reviewer can keep; it needs no network, and escapes all names.

The page is readable without JavaScript, which only filters the list of tensors. The content
security policy in its head allows only its own style and script, by their digests.
"""

from base64 import b64encode
from collections.abc import Iterable, Iterator, Mapping, Sequence
from hashlib import sha256
from importlib.resources import files as resources
from xml.etree.ElementTree import Element

from auditor.findings import Finding, Severity, kind_of
from auditor.formats import View, verdict
from auditor.formats.block_diagram import diagram
from auditor.formats.icicle import Cell, cells_of_outcome, icicle, legend_of, swatch
from auditor.formats.markup import (
    Child,
    code,
    element,
    html,
    html_table,
    linked,
    scrolled,
    verbatim,
)
from auditor.formats.module_table import module_table
from auditor.formats.tables import Name, SimpleTable, Table
from auditor.formats.tensor_table import tensor_list
from auditor.formats.verdict import (
    address,
    counts_of,
    engine_rows,
    engines_heading,
    first_patterns,
)
from auditor.report import Diagnosis, FixCommand, Report, Unaudited

_MOST_PATTERNS = 500  # folded names of one finding; findings.csv has all of them


def files(outcomes: Sequence[Report | Unaudited], view: View) -> Mapping[str, str]:
    """Return one page, with a section for each model."""
    names = ", ".join(outcome.model or outcome.requested for outcome in outcomes)
    style = _style()
    body = element("main", {}, *(_model(outcome) for outcome in outcomes))
    has_tensors = body.find(".//details[@class='tensors']") is not None
    script = _text("tensor_list.js") if has_tensors else ""
    policy = {"http-equiv": "Content-Security-Policy", "content": content_policy(style, script)}
    head = element(
        "head",
        {},
        element("meta", {"charset": "utf-8"}),
        element("meta", policy),
        element("meta", {"name": "viewport", "content": "width=device-width, initial-scale=1"}),
        element("title", {}, f"Audit of {names[:200]}"),
        verbatim("style", style),
    )
    program = " ".join(filter(None, ("hf-audit", view.auditor, view.date and f"on {view.date}")))
    footer = element("footer", {}, f"Made by {program} from {_what_was_read(outcomes)}")
    filtering = verbatim("script", script) if script else None
    page = element("html", {"lang": "en"}, head, element("body", {}, body, footer, filtering))
    return {"report.html": html(page)}


def _what_was_read(outcomes: Sequence[Report | Unaudited]) -> str:
    read = [part.values for outcome in outcomes for part in outcome.every if part.values]
    if not read:
        return "headers alone; no weight was read."
    is_sampled = any(values.sampled for values in read)
    return "headers and a sample of the numbers." if is_sampled else "headers and numbers."


def _text(name: str) -> str:
    return (resources(__package__) / "template" / name).read_text(encoding="ascii")


def content_policy(style: str, script: str) -> str:
    """Return a content security policy that allows only this style, and this script if given."""
    texts = {"style": style, "script": script}
    allowed = [f"{what}-src {_digest(text)}" for what, text in texts.items() if text]
    parts = ["default-src 'none'", *allowed, "base-uri 'none'", "form-action 'none'"]
    return "; ".join(parts)


def policy_digests() -> Mapping[str, str]:
    """Return the digests of the style and the script, for the policy of a page that frames one."""
    return {"style": _digest(_style()), "script": _digest(_text("tensor_list.js"))}


def _digest(text: str) -> str:
    return f"'sha256-{b64encode(sha256(text.encode()).digest()).decode()}'"


def _style() -> str:
    return _text("palette.css") + _text("page.css")


def _model(outcome: Report | Unaudited) -> Element:
    causes = (_cause(why, cause) for why, cause in verdict.causes_to_print(outcome))
    fixes = (_fix(one.fix_command, one.component) for one in outcome.every if one.fix_command)
    article = element("article", {}, *_heading(outcome), *fixes, *causes, *_engines(outcome))
    for section in (_modules, _findings, _tensors, _config, _files):
        article.extend(section(outcome))
    article.extend(_sentences("Not checked", outcome.unchecked))
    article.extend(_sentences("Notes", outcome.notes))
    return article


def _heading(outcome: Report | Unaudited) -> Iterator[Element]:
    name = outcome.model or outcome.requested
    yield element("h1", {}, linked(name, address(outcome)))
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


def _fix(fix: FixCommand, component: str | None) -> Element:
    """Return a card with the command that mends a model."""
    of = f" for {component}" if component else ""
    allows = (
        element("p", {}, code(f"--allow {one.allow}"), f": {one.consequence}.")
        for one in fix.allows
    )
    return element(
        "section",
        {"class": "card info"},
        element("h2", {}, f"Command{of}"),
        element("pre", {}, code(fix.command)),
        element("p", {}, f"It {fix.effect}."),
        *allows,
    )


def _cause(why: str, diagnosis: Diagnosis) -> Element:
    """Return a card with a cause's fix, and with its summary unless that is the headline."""
    return element(
        "section",
        {"class": f"card {diagnosis.severity}"},
        element("h2", {}, f"What to do ({diagnosis.cause})"),
        element("p", {}, why) if why else None,
        element("p", {}, diagnosis.fix),
        element("p", {"class": "sub"}, f"This explains {diagnosis.explains}.")
        if diagnosis.explains
        else None,
    )


def _engines(outcome: Report | Unaudited) -> Iterator[Element]:
    if outcome.engines:
        table = SimpleTable("engines", ("engine", "verdict"), tuple(engine_rows(outcome)))
        yield element("h2", {}, "Engines")
        yield _scrolled("Engines", outcome, table)
        yield element("p", {"class": "sub"}, f"{engines_heading(outcome)}.")


def _scrolled(title: str, outcome: Report | Unaudited, table: Table) -> Element:
    """Return a table that scrolls if it is wider than a phone; its label names the model."""
    return scrolled(f"{title} of {outcome.model or outcome.requested}", html_table(table))


# --- modules ------------------------------------------------------------------------------------


def _modules(outcome: Report | Unaudited) -> Iterator[Element]:
    placed = cells_of_outcome(outcome)
    if not placed:
        return
    yield element("h2", {}, "Where the parameters are")
    yield icicle(placed, "Modules, as wide as their parameters; the table below shows the same")
    yield _legend(placed)
    blocks = diagram(placed[0], outcome)
    if blocks is not None:
        yield blocks
    columns = ("module", "modules", "stored", "expected", "share", "status", "formula")
    table = module_table(placed, *columns)
    table = table._replace(columns=(*columns[:-1], "formula of one"))
    head = element("summary", {}, "Modules as a table")
    yield element("details", {}, head, _scrolled("Modules", outcome, table))


def _legend(placed: Sequence[Cell]) -> Element:
    """Return the legend of a drawing: the colours of kinds and the patterns of statuses."""
    legend = element("ul", {"class": "legend"})
    for kind, status, text in legend_of(placed):
        square = element("svg", {"class": "icicle", "aria-hidden": "true"}, *swatch(kind, status))
        legend.append(element("li", {}, square, text))
    return legend


# --- findings -----------------------------------------------------------------------------------


def _findings(outcome: Report | Unaudited) -> Iterator[Element]:
    parts = [part for part in outcome.every if part.findings or part.ignored]
    if parts:
        yield element("h2", {}, "Findings")
    for part in parts:
        if part.component is not None:
            yield element("h3", {}, part.component)
        ranked = sorted(enumerate(part.findings), key=lambda pair: pair[1].severity.rank)
        yield from (_finding(one, explained=at in part.explained) for at, one in ranked)
        yield from (_finding(finding, ignored=True) for finding in part.ignored)


def _finding(finding: Finding, *, explained: bool = False, ignored: bool = False) -> Element:
    """Return a finding with its names; an error or warning without a cause is expanded."""
    alarms = finding.severity is not Severity.INFO and not ignored
    kind = f"{'ignored ' if ignored else ''}{finding.severity}: {finding.kind}"
    about = filter(None, (finding.file, *counts_of(finding)))
    patterns, more = first_patterns(finding, _MOST_PATTERNS)
    items: list[Child] = [*map(code, patterns), *([more] if more else [])]
    style = f"kind {finding.severity}" if alarms else None
    summary = element("strong", {"class": style}, kind)
    badge = element("span", {"class": "badge"}, ", ".join(about))
    return element(
        "details",
        {"open": "open" if alarms and not explained else None},
        element("summary", {}, summary, badge),
        element("p", {}, finding.reason),
        _list(items, **{"class": "names"}) if items else None,
        element("p", {"class": "sub"}, *_to_do(finding)),
    )


def _list(items: Iterable[Child], **attributes: str) -> Element:
    return element("ul", attributes, *(element("li", {}, item) for item in items))


def _to_do(finding: Finding) -> Iterator[Child]:
    """Yield the advice for a finding; text in backticks becomes code."""
    for at, part in enumerate(kind_of(finding).to_do.split("`")):
        yield code(part) if at % 2 else part


def _tensors(outcome: Report | Unaudited) -> Iterator[Element]:
    """Yield the tensors of the model, or of each of its components."""
    sections = [(part.component, tensor_list(part)) for part in outcome.every]
    if any(section is not None for _, section in sections):
        yield element("h2", {}, "Tensors")
    for component, section in sections:
        if section is not None:
            if component is not None:
                yield element("h3", {}, component)
            yield section


# --- config and files ---------------------------------------------------------------------------


def _config(outcome: Report | Unaudited) -> Iterator[Element]:
    """Yield the config keys that shape tensors, with their declared and stored values."""
    if outcome.expected is None or not outcome.expected.legend:
        return
    fields = {key: (old, new) for cause in outcome.diagnosis for key, old, new in cause.fields}
    rows: list[tuple[object, ...]] = []
    columns = ("key", "letter", "value", *(("the files hold",) if fields else ()))
    for symbol in outcome.expected.legend:
        default = " (the class's default)" if symbol.default else None
        key = element("span", {}, code(symbol.key), default)
        _, stored = fields.pop(symbol.key, ("", ""))
        rows.append((key, symbol.letter, symbol.value, f"{stored}")[: len(columns)])
    for name, (declared, stored) in fields.items():  # keys on which no tensor's shape depends
        rows.append((Name(name), "", f"{declared}", f"{stored}"))
    yield element("h2", {}, "Config")
    yield _scrolled("Config", outcome, SimpleTable("config", columns, tuple(rows)))
    formula = code(outcome.expected.formula)
    yield element("p", {"class": "sub"}, "Parameters of the whole model: ", formula)


def _files(outcome: Report | Unaudited) -> Iterator[Element]:
    if outcome.observed is None or not outcome.observed.by_file:
        return
    rows = tuple(
        (linked(file.name, address(outcome, file.name)), file.size, file.tensors, file.parameters)
        for file in outcome.observed.by_file
    )
    table = SimpleTable("files", ("file", "bytes", "tensors", "parameters"), rows)
    yield element("h2", {}, "Files")
    yield _scrolled("Files", outcome, table)


def _sentences(heading: str, texts: Sequence[str]) -> Iterator[Element]:
    if texts:
        yield element("h2", {}, heading)
        yield _list(texts)
