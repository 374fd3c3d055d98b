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
from auditor.formats.text import size
from auditor.messages import printable

_WORDS = {"new": "new findings", "open": "known findings", "unaudited": "not audited"}
_HUB = "https://huggingface.co/"
_DOT = " \N{MIDDLE DOT} "
_LONGEST_ITEM = 300  # characters of a new item's description
_SCALES = ((10**12, "T"), (10**9, "B"), (10**6, "M"), (10**3, "k"))


def heading(
    summary: Mapping[str, Any], pages: Mapping[str, str], *, left_out: int
) -> Mapping[str, str]:
    """Return HTML for the template's placeholders; `pages` are addresses by model."""
    elements = {
        "bar": _bar(summary["states"], max(1, summary["models"])),
        "news": _news(summary["news"], pages),
        "causes": _counts("Causes", "cause", summary["causes"]),
        "kinds": _counts("Findings by kind", "kind", summary["findings"]),
        "notes": (element("li", {}, note) for note in _notes(summary, left_out)),
    }
    texts = {"night": summary["night"], "subtitle": _subtitle(summary), **_figures(summary)}
    return {
        **{place: escape(printable(text)) for place, text in texts.items()},
        **{place: "".join(map(html_fragment, parts)) for place, parts in elements.items()},
    }


def night_fragment(summary: Mapping[str, Any]) -> str:
    """Return the HTML of a night for a notebook: its name, counts of states, new findings."""
    states = ", ".join(
        f"{count:,} {_WORDS.get(state, state)}"
        for state, count in summary["states"].items()
        if count
    )
    name = element("strong", {}, summary["night"])
    title = element("p", {}, name, f"{_DOT}{_subtitle(summary)}")
    news = _news(summary["news"], {})
    return html_fragment(element("div", {}, title, element("p", {}, states), *news))


def _subtitle(summary: Mapping[str, Any]) -> str:
    before = summary["previous"]
    since = f"compared with {before['night']}" if before else "the first night of its store"
    ended = summary["finished"]
    state = f"finished {ended[:16].replace('T', ' ')} UTC" if ended else "not finished yet"
    parts = (f"{summary['models']:,} models", since, state, f"hf-audit {summary['auditor']}")
    return _DOT.join(parts)


def _figures(summary: Mapping[str, Any]) -> Mapping[str, str]:
    """Return the texts of the tiles at the top of the page, by their names in the template."""
    states, changes, totals = summary["states"], summary["changes"], summary["totals"]
    counts = {
        **states,
        "unaudited": states["unaudited"] + states["pending"],
        "fixed": changes.get("fixed", 0),
        "moved": changes.get("commit", 0),
        "tensors": totals["tensors"],
    }
    return {
        **{name: f"{count:,}" for name, count in counts.items()},
        "reasons": _reasons(summary),
        "parameters": short(totals["parameters"]),
        "size": size(totals["bytes"], digits=3),
    }


def _reasons(summary: Mapping[str, Any]) -> str:
    """Return the three most frequent reasons for unaudited models, and the pending models."""
    counts = Counter(summary["reasons"]).most_common(3)
    if pending := summary["states"]["pending"]:
        counts.append(("pending", pending))
    return ", ".join(f"{count:,} {reason}" for reason, count in counts) or "none"


def short(number: int) -> str:
    """Return a number as `1.23M`: three digits are enough to compare by eye."""
    for scale, letter in _SCALES:
        if number >= scale:
            return f"{number / scale:.3g}{letter}" if number < 1000 * scale else f"{number:.2e}"
    return str(number)


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
        rows = tuple(new_row(item, pages.get(item["model"])) for item in news["listed"])
        table = SimpleTable("news", ("model", "cause or kind", "what was found"), rows)
        news_table = scrolled("New tonight", html_table(table, **{"class": "news"}))
        more = element("p", {}, f"and {news['more']:,} more, in changes.csv")
        yield _section("New tonight", news_table, more if news["more"] else None)


def new_row(item: Mapping[str, Any], page: str | None = None) -> tuple[Element, ...]:
    """Return the table cells of a new cause or finding: model with links, kind, description."""
    commit = f"/tree/{item['commit']}" if item["commit"] else ""
    address = _HUB + quote(printable(f"{item['model']}{commit}"))
    of_model = element("span", {"class": "hidden"}, " of ", element("bdi", {}, item["model"]))
    model = element(
        "span",
        {},
        element("a", {"href": address}, element("bdi", {}, item["model"])),
        f" ({item['component']})" if item["component"] else None,
        *((" ", element("a", {"href": page}, "report", of_model)) if page else ()),
    )
    description = element("bdi", {}, item["said"][:_LONGEST_ITEM])
    return model, _mark(item["severity"], item["what"]), description


def _counts(
    title: str, column: str, counts_by_name: Mapping[str, Mapping[str, Any]]
) -> Iterator[Element]:
    """Yield a section with a table of counts; yield nothing if there are no counts."""
    if counts_by_name:
        [first_counts, *_] = counts_by_name.values()
        rows = tuple(
            (name, *(_mark(cell, cell) if isinstance(cell, str) else cell for cell in row.values()))
            for name, row in counts_by_name.items()
        )
        table = SimpleTable(title, (column, *first_counts), rows)
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
        yield f"{left_out:,} models are not on this page; models.csv has them."
    if summary["baseline"]:
        for note in summary["baseline"]["notes"]:
            yield f"Baseline: {note}"
    yield f"Selected: {_selection(summary['selection'])}"


def _selection(text: str) -> str:
    """Return the selections of a night as text, by their options."""
    try:
        selections = decode(text, type=list[dict[str, Any]])
    except ValueError:
        return text
    words = ([f"{key} {value}" for key, value in one.items() if value] for one in selections)
    return "; ".join(map(", ".join, words))
