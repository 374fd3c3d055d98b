"""The top of the page: the summary of a night, as HTML that needs no script."""

from collections import Counter
from collections.abc import Iterator, Mapping
from html import escape
from typing import Any
from urllib.parse import quote
from xml.etree.ElementTree import Element

from msgspec.json import decode

from auditor.formats.markup import Child, element, html_fragment, html_table, scrolled
from auditor.formats.tables import SimpleTable
from auditor.formats.text import counted, short_count, size
from auditor.messages import printable

_WORDS = {"new": "with new findings", "open": "with known findings", "unaudited": "not audited"}
HUB = "https://huggingface.co/"
_DOT = " \N{MIDDLE DOT} "
_LONGEST_ITEM = 300  # characters of a new item's description


def heading(
    summary: Mapping[str, Any], pages: Mapping[str, str], *, left_out: int
) -> Mapping[str, str]:
    """Return HTML for the template's placeholders; `pages` are addresses by model."""
    elements = {
        "bar": _bar(summary["states"], max(1, summary["models"])),
        "news": _news(summary["news"], pages),
        "mended": _mended(summary, pages),
        "decisions": _decisions(summary["baseline"]),
        "causes": _counts("Causes", "cause", summary["causes"], "models"),
        "kinds": _counts("Findings by kind", "kind", summary["findings"], "findings"),
        "notes": (element("li", {}, note) for note in _notes(summary, left_out)),
    }
    texts = {"night": summary["night"], "subtitle": _subtitle(summary), **_figures(summary)}
    return {
        **{place: escape(printable(text)) for place, text in texts.items()},
        **{place: "".join(map(html_fragment, parts)) for place, parts in elements.items()},
    }


def counts_in_words(summary: Mapping[str, Any]) -> str:
    """Return the counts of models by state, then those of errors and warnings by change."""
    states = ", ".join(
        f"{count:,} {_WORDS.get(state, state)}"
        for state, count in summary["states"].items()
        if count
    )
    alarms, kinds = summary["errors_and_warnings"], ("new", "changed", "still-open", "fixed")
    changes = ", ".join(f"{alarms.get(change, 0):,} {change}" for change in kinds)
    if unseen := alarms.get("unseen"):
        changes = f"{changes}, {unseen:,} not seen tonight"
    models = f"{counted(summary['models'], 'model')} ({states or 'none'})"
    return f"{models}; errors and warnings: {changes}"


def _subtitle(summary: Mapping[str, Any]) -> str:
    before = summary["previous"]
    since = f"compared with {before['night']}" if before else "the first night of its store"
    ended = summary["finished"]
    state = f"finished {_minute(ended)}" if ended else "not finished yet"
    gone = summary["changes"].get("deselected", 0)
    parts = (
        counted(summary["models"], "model"),
        f"{gone:,} no longer selected" if gone else "",
        since,
        state,
        f"hf-audit {summary['auditor']}",
    )
    return _DOT.join(filter(None, parts))


def _minute(time: str) -> str:
    """Return a time in UTC, as ISO 8601, to the minute: `2026-11-25 14:02 UTC`."""
    return f"{time[:16].replace('T', ' ')} UTC"


def _figures(summary: Mapping[str, Any]) -> Mapping[str, str]:
    """Return the texts of the tiles at the top of the page, by their names in the template."""
    states, changes, totals = summary["states"], summary["changes"], summary["totals"]
    alarms = summary["errors_and_warnings"]
    counts = {
        **states,
        "unaudited": states["unaudited"] + states["pending"],
        "fixed": alarms.get("fixed", 0),
        "new_alarms": alarms.get("new", 0) + alarms.get("changed", 0),
        "open_alarms": alarms.get("still-open", 0),
        "accepted_alarms": alarms.get("accepted", 0),
        "moved": changes.get("commit", 0),
        "tensors": totals["tensors"],
    }
    return {
        **{name: f"{count:,}" for name, count in counts.items()},
        "fixed_models": counted(summary["models_with"].get("fixed", 0), "model"),
        "reasons": _reasons(summary),
        "parameters": short_count(totals["parameters"]),
        "size": size(totals["bytes"], digits=3),
    }


def _reasons(summary: Mapping[str, Any]) -> str:
    """Return the three most frequent reasons for unaudited models, and the pending models.

    The reasons of accepted models are counted too.
    """
    counts = Counter(summary["reasons"]).most_common(3)
    if pending := summary["states"]["pending"]:
        counts.append(("pending", pending))
    reasons = ", ".join(f"{count:,} {reason}" for reason, count in counts) or "none"
    excused = (summary["baseline"] or {}).get("excused")
    return f"{reasons}; {excused:,} of them accepted" if excused else reasons


def _bar(states: Mapping[str, int], models: int) -> Iterator[Element]:
    """Yield the parts of a bar as SVG, 1000 units wide; each part has a visible width."""
    shown = {state: count for state, count in states.items() if count}
    least = 4
    room = 1000 - least * len(shown)
    at = 0.0
    for state, count in shown.items():
        width = least + room * count / models
        place = {"x": f"{at:.1f}", "y": "0", "width": f"{width:.1f}", "height": "12"}
        title = element("title", {}, f"{count:,} {_WORDS.get(state, state)}")
        yield element("rect", {"class": f"b-{state}", **place}, title)
        at += width


def _news(news: Mapping[str, Any], pages: Mapping[str, str]) -> Iterator[Element]:
    """Yield a section with the new items; yield nothing if there are no new items.

    Each item links to the model at its commit and to its page.
    """
    if news["listed"]:
        rows = tuple(
            (*new_row(item, pages.get(item["model"])), _text(item["fix"]))
            for item in news["listed"]
        )
        columns = ("model", "cause or kind", "what was found", "what to do")
        yield _listed(SimpleTable("New or changed tonight", columns, rows), news["more"])


def new_row(
    item: Mapping[str, Any], page: str | None = None, *, at: str = "tree"
) -> tuple[Element, ...]:
    """Return the table cells of a new cause or finding: model with links, kind, description.

    `at` is the page of the Hub that the model links to: the `tree` of its files, or the `commit`.
    """
    commit = f"/{at}/{item['commit']}" if item["commit"] else ""
    name = element("bdi", {}, item["model"])
    is_on_hub = "://" not in item["model"]  # an address of a store has no page
    address = HUB + quote(printable(f"{item['model']}{commit}"))
    of_model = element("span", {"class": "hidden"}, " of ", name)
    model = element(
        "span",
        {},
        element("a", {"href": address}, name) if is_on_hub else name,
        f" ({item['component']})" if item["component"] else None,
        *((" ", element("a", {"href": page}, "report", of_model)) if page else ()),
        " ",
        _push(item),
    )
    changed = " (changed)" if item["change"] == "changed" else None
    kind = element("span", {}, _mark(item["severity"], item["what"]), changed)
    return model, kind, _text(item["said"])


def _push(item: Mapping[str, Any]) -> Element | None:
    """Return who pushed the commit of an item, and when; None if neither is known."""
    time, authors = item["last_modified"], item["commit_authors"]
    by = (" by ", _text(authors)) if authors else ()
    on = f" on {_minute(time)}" if time else None
    return element("small", {}, "pushed", *by, on) if time or authors else None


def _text(text: str) -> Element:
    return element("bdi", {}, text[:_LONGEST_ITEM])


def _mended(summary: Mapping[str, Any], pages: Mapping[str, str]) -> Iterator[Element]:
    """Yield a section with the errors and warnings of the night before that are gone.

    Each links to the commit, whose page on the Hub says who pushed it.
    """
    mended = summary["fixed"]
    if mended["listed"]:
        rows = tuple(
            new_row(item, pages.get(item["model"]), at="commit") for item in mended["listed"]
        )
        title = f"Fixed since {summary['previous']['night']}"
        yield _listed(SimpleTable(title, ("model", "kind", "what is gone"), rows), mended["more"])


def _decisions(baseline: Mapping[str, Any] | None) -> Iterator[Element]:
    """Yield a section with the decisions of the baseline, expired ones first."""
    if baseline and baseline["decisions"]["listed"]:
        rows = tuple(
            (
                _text(one["model"]),
                one["kind"] if one["name"] == "*" else _text(f"{one['kind']}: {one['name']}"),
                _text(one["reason"]),
                _text(one["by"] or "not named"),
                one["expires"] or "never",
                _mark("warning", "expired") if one["state"] == "expired" else one["state"],
                f"{one['findings']:,}",
            )
            for one in baseline["decisions"]["listed"]
        )
        columns = ("models", "kind", "reason", "by", "last night", "tonight", "findings")
        table = SimpleTable("Accepted", columns, rows)
        yield _listed(table, baseline["decisions"]["more"], "the baseline")


def _listed(table: SimpleTable, more: int, place: str = "changes.csv") -> Element:
    """Return a section with a table, and the number of rows that only `place` has."""
    rows = scrolled(table.title, html_table(table, **{"class": "news"}))
    left = element("p", {}, f"and {more:,} more, in {place}") if more else None
    return _section(table.title, rows, left)


def _counts(
    title: str, column: str, counts_by_name: Mapping[str, Mapping[str, Any]], new: str
) -> Iterator[Element]:
    """Yield a section with a table of counts; yield nothing if there are no counts."""
    if counts_by_name:
        [first_counts, *_] = counts_by_name.values()
        columns = [f"new {new}" if name == "new" else name for name in first_counts]
        rows = tuple(
            (name, *(_mark(cell, cell) if isinstance(cell, str) else cell for cell in row.values()))
            for name, row in counts_by_name.items()
        )
        table = SimpleTable(title, (column, *columns), rows)
        yield _section(title, html_table(table, **{"class": "kinds"}))


def _mark(severity: str, text: str) -> Element:
    return element("span", {"class": f"sev {severity}"}, text)


def _section(title: str, *children: Child) -> Element:
    return element("section", {}, element("h2", {}, title), *children)


def _notes(summary: Mapping[str, Any], left_out: int) -> Iterator[str]:
    before = summary["previous"]
    ours = (summary["auditor"], summary["catalogue"])
    if before and (before["auditor"], before["catalogue"]) != ours:
        yield "The auditor has changed since the night before, so findings may differ."
    if left_out:
        yield f"Not on this page: {counted(left_out, 'model')}; models.csv has them."
    if summary["baseline"]:
        for note in summary["baseline"]["notes"]:
            yield f"Baseline: {note}"
    for what, models in summary["not_checked"].items():
        yield f"Not checked: {what}, of {counted(models, 'model')}"
    yield f"Selected: {_selection(summary['selection'])}"


def _selection(text: str) -> str:
    """Return the selections of a night as text, by their options."""
    try:
        selections = decode(text, type=list[dict[str, Any]])
    except ValueError:
        return text
    words = ([f"{key} {value}" for key, value in one.items() if value] for one in selections)
    return "; ".join(map(", ".join, words))
