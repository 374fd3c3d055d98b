"""The top of the page: a night in a few numbers, as HTML that needs no script."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from html import escape
from typing import Any
from urllib.parse import quote
from xml.etree.ElementTree import Element

from msgspec.json import decode

from auditor.formats.markup import Child, element, html_fragment, scrolled, table
from auditor.formats.text import size
from auditor.messages import printable

_WORDS = {"new": "new findings", "open": "known findings", "unaudited": "not audited"}
_HUB = "https://huggingface.co/"
_DOT = " \N{MIDDLE DOT} "
_MOST_SAID = 300  # characters of what was found
_SCALES = ((10**12, "T"), (10**9, "B"), (10**6, "M"), (10**3, "k"))


def heading(
    summary: Mapping[str, Any], pages: Mapping[str, str], *, left_out: int
) -> Mapping[str, str]:
    """What the template has places for; `pages` are the addresses of the models' own."""
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
        **{place: "".join(map(html_fragment, found)) for place, found in elements.items()},
    }


def night_fragment(summary: Mapping[str, Any]) -> str:
    """What a notebook shows of a night: its name, how models stand, what is new."""
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
    """What the tiles say."""
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
    """The three most frequent ones."""
    found = Counter(summary["reasons"]).most_common(3)
    pending = summary["states"]["pending"]
    most = [*found, ("pending", pending)] if pending else found
    return ", ".join(f"{count:,} {reason}" for reason, count in most) or "none"


def short(number: int) -> str:
    """1.23M; three digits are enough to compare by eye."""
    for scale, letter in _SCALES:
        if number >= scale:
            return f"{number / scale:.3g}{letter}" if number < 1000 * scale else f"{number:.2e}"
    return str(number)


def _bar(states: Mapping[str, int], models: int) -> Iterator[Element]:
    """The parts of a bar 1000 wide, as SVG; no part that there is becomes invisible."""
    shown = {state: count for state, count in states.items() if count}
    least = 4
    room = 1000 - least * len(shown)
    at = 0.0
    for state, count in shown.items():
        width = least + room * count / models
        place = {"x": f"{at:.1f}", "y": "0", "width": f"{width:.1f}", "height": "12"}
        said = element("title", {}, f"{count:,} {_WORDS.get(state, state)}")
        yield element("rect", {"class": f"b-{state}", **place}, said)
        at += width


def _news(news: Mapping[str, Any], pages: Mapping[str, str]) -> Iterator[Element]:
    """What is new, each with links to the model at its commit and to its page; or nothing."""
    if news["listed"]:
        columns = dict.fromkeys(("model", "cause or kind", "what was found"), False)
        rows = (new_row(item, pages.get(item["model"])) for item in news["listed"])
        listed = scrolled("New tonight", table(columns, rows, **{"class": "news"}))
        more = element("p", {}, f"and {news['more']:,} more, in changes.csv")
        yield _section("New tonight", listed, more if news["more"] else None)


def new_row(item: Mapping[str, Any], page: str | None = None) -> Sequence[Element]:
    """The model with its links, the cause or the kind, and what was found."""
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
    said = element("bdi", {}, item["said"][:_MOST_SAID])
    return model, _mark(item["severity"], item["what"]), said


def _counts(title: str, what: str, found: Mapping[str, Mapping[str, Any]]) -> Iterator[Element]:
    """Yields a section with a table of counts, unless there is nothing to count."""
    if found:
        [counted, *_] = found.values()
        columns = {what: False, **{name: name != "severity" for name in counted}}
        rows = ((name, *map(_cell, one.values())) for name, one in found.items())
        yield _section(title, table(columns, rows, **{"class": "kinds"}))


def _cell(count: int | str) -> Child:
    return f"{count:,}" if isinstance(count, int) else _mark(count, count)


def _mark(severity: str, text: str) -> Element:
    return element("span", {"class": f"sev {severity}"}, text)


def _section(title: str, *children: Child) -> Element:
    return element("section", {}, element("h2", {}, title), *children)


def _notes(summary: Mapping[str, Any], left_out: int) -> Iterator[str]:
    before = summary["previous"]
    ours = (summary["auditor"], summary["catalogue"])
    if before and (before["auditor"], before["catalogue"]) != ours:
        yield "The auditor itself has changed since the night before: so may its findings have."
    if left_out:
        yield f"{left_out:,} models are left out of this page, and are in models.csv."
    if summary["baseline"]:
        for note in summary["baseline"]["notes"]:
            yield f"Baseline: {note}"
    yield f"Selected: {_selection(summary['selection'])}"


def _selection(text: str) -> str:
    """What was asked for, in the words of the options."""
    try:
        asked = decode(text, type=list[dict[str, Any]])
    except ValueError:
        return text
    words = ([f"{key} {value}" for key, value in one.items() if value] for one in asked)
    return "; ".join(map(", ".join, words))
