"""The top of the page: a night in a few numbers, as HTML that needs no script."""

import json
from collections.abc import Iterator, Mapping, Sequence
from html import escape
from typing import Any
from urllib.parse import quote
from xml.etree.ElementTree import Element

from auditor.formats.markup import Child, element, fragment, scrolled, table
from auditor.formats.text import printable, size

_STATES = {
    "new": "new findings",
    "open": "known findings",
    "unaudited": "not audited",
    "pending": "pending",
    "accepted": "accepted",
    "clean": "clean",
}
_OF_CAUSE = ("models", "findings", "new")
_OF_KIND = ("severity", "models", "findings", "new", "accepted")
_HUB = "https://huggingface.co/"
_DOT = " \N{MIDDLE DOT} "
_MOST_SAID = 300  # characters of what was found
_SCALES = ((10**12, "T"), (10**9, "B"), (10**6, "M"), (10**3, "k"))


def heading(
    summary: Mapping[str, Any], pages: Mapping[str, str], *, left_out: int
) -> Mapping[str, str]:
    """What the template has places for; `pages` are the addresses of the models' own."""
    elements = {
        "tiles": _tiles(summary),
        "bar": _bar(summary["states"], max(1, summary["models"])),
        "news": _news(summary["news"], pages),
        "causes": [_section("Causes", _counts("cause", _OF_CAUSE, summary["causes"]))],
        "kinds": [_section("Findings by kind", _counts("kind", _OF_KIND, summary["findings"]))],
        "notes": (element("li", {}, note) for note in _notes(summary, left_out)),
    }
    if not summary["causes"]:
        elements["causes"] = []
    return {
        "night": escape(printable(summary["night"])),
        "subtitle": escape(printable(_subtitle(summary))),
        **{place: "".join(map(fragment, found)) for place, found in elements.items()},
    }


def night_fragment(summary: Mapping[str, Any]) -> str:
    """What a notebook shows of a night: its name, how models stand, what is new."""
    states = ", ".join(
        f"{count:,} {_STATES[state]}" for state, count in summary["states"].items() if count
    )
    name = element("strong", {}, summary["night"])
    title = element("p", {}, name, f"{_DOT}{_subtitle(summary)}")
    news = _news(summary["news"], {})
    return fragment(element("div", {}, title, element("p", {}, states), *news))


def _subtitle(summary: Mapping[str, Any]) -> str:
    before = summary["previous"]
    since = f"compared with {before['night']}" if before else "the first night of its store"
    ended = summary["finished"]
    state = f"finished {ended[:16].replace('T', ' ')} UTC" if ended else "not finished yet"
    parts = (f"{summary['models']:,} models", since, state, f"hf-audit {summary['auditor']}")
    return _DOT.join(parts)


def _tiles(summary: Mapping[str, Any]) -> Iterator[Element]:
    states, changes = summary["states"], summary["changes"]
    figures = {
        "new findings": (states["new"], "models with an error or a warning that is new", "new"),
        "known findings": (states["open"], "models with no other than those of before", "open"),
        "not audited": (states["unaudited"] + states["pending"], _reasons(summary), "unaudited"),
        "clean": (states["clean"], f"models, and {states['accepted']:,} accepted", "clean"),
        "fixed": (changes.get("fixed", 0), "findings of the night before that are gone", "fixed"),
        "commits moved": (changes.get("commit", 0), "models that were pushed to since", "moved"),
        "parameters": (short(summary["totals"]["parameters"]), _stored(summary), "total"),
    }
    for name, (figure, said, mark) in figures.items():
        yield element(
            "li",
            {"class": f"tile t-{mark}"},
            element("strong", {}, f"{figure:,}" if isinstance(figure, int) else figure),
            element("span", {}, name),
            element("small", {}, said),
        )


def _reasons(summary: Mapping[str, Any]) -> str:
    found = sorted(summary["reasons"].items(), key=lambda one: (-one[1], one[0]))
    pending = summary["states"]["pending"]
    said = [f"{count:,} {reason}" for reason, count in found[:3]]
    return ", ".join([*said, *([f"{pending:,} pending"] if pending else [])]) or "none"


def _stored(summary: Mapping[str, Any]) -> str:
    totals = summary["totals"]
    return f"in {totals['tensors']:,} tensors, {size(totals['bytes'], digits=3)} on disk"


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
        said = element("title", {}, f"{count:,} {_STATES[state]}")
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


def _counts(what: str, counts: Sequence[str], found: Mapping[str, Mapping[str, Any]]) -> Element:
    """A table of how many there are of each."""
    columns = {what: False, **{name: name != "severity" for name in counts}}
    rows = ((name, *(_cell(one[column]) for column in counts)) for name, one in found.items())
    return table(columns, rows, **{"class": "kinds"})


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
        asked = json.loads(text)
    except ValueError:
        return text
    if not isinstance(asked, list) or not all(isinstance(one, dict) for one in asked):
        return text
    return "; ".join(
        ", ".join(f"{key} {value}" for key, value in one.items() if value) for one in asked
    )
