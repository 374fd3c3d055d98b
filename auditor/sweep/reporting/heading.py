"""The top of the page: a night in a few numbers, as HTML that needs no script."""

import json
from collections.abc import Iterator, Mapping
from html import escape
from typing import Any
from urllib.parse import quote

from auditor.formats.text import printable, size

_STATES = {
    "new": "new findings",
    "open": "known findings",
    "unaudited": "not audited",
    "pending": "pending",
    "accepted": "accepted",
    "clean": "clean",
}
_MOST_SAID = 300  # characters of what was found
_SCALES = ((10**12, "T"), (10**9, "B"), (10**6, "M"), (10**3, "k"))


def heading(
    summary: Mapping[str, Any], pages: Mapping[str, str], *, left_out: int
) -> Mapping[str, str]:
    """What the template has places for; `pages` are the addresses of the models' own."""
    return {
        "night": _html(summary["night"]),
        "subtitle": _subtitle(summary),
        "tiles": "".join(_tiles(summary)),
        "bar": "".join(_bar(summary["states"], max(1, summary["models"]))),
        "news": _news(summary["news"], pages),
        "causes": _causes(summary["causes"]),
        "kinds": "".join(_kinds(summary["findings"])),
        "notes": "".join(f"<li>{_html(note)}</li>" for note in _notes(summary, left_out)),
    }


def night_fragment(summary: Mapping[str, Any]) -> str:
    """What a notebook shows of a night: its name, how models stand, what is new."""
    states = ", ".join(
        f"{count:,} {_STATES[state]}" for state, count in summary["states"].items() if count
    )
    title = f"<p><strong>{_html(summary['night'])}</strong> &middot; {_subtitle(summary)}</p>"
    return f"<div>{title}<p>{_html(states)}</p>{_news(summary['news'], {})}</div>"


def _subtitle(summary: Mapping[str, Any]) -> str:
    before = summary["previous"]
    since = f"compared with {before['night']}" if before else "the first night of its store"
    ended = summary["finished"]
    state = f"finished {ended[:16].replace('T', ' ')} UTC" if ended else "not finished yet"
    parts = (f"{summary['models']:,} models", since, state, f"hf-audit {summary['auditor']}")
    return " &middot; ".join(map(_html, parts))


def _tiles(summary: Mapping[str, Any]) -> Iterator[str]:
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
        shown = f"{figure:,}" if isinstance(figure, int) else figure
        yield (
            f'<li class="tile t-{mark}"><strong>{_html(shown)}</strong>'
            f"<span>{_html(name)}</span><small>{_html(said)}</small></li>"
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


def _bar(states: Mapping[str, int], models: int) -> Iterator[str]:
    """The parts of a bar 1000 wide, as SVG; no part that there is becomes invisible."""
    shown = {state: count for state, count in states.items() if count}
    least = 4
    room = 1000 - least * len(shown)
    at = 0.0
    for state, count in shown.items():
        width = least + room * count / models
        said = f"{count:,} {_STATES[state]}"
        yield (
            f'<rect class="b-{state}" x="{at:.1f}" y="0" width="{width:.1f}" height="12">'
            f"<title>{_html(said)}</title></rect>"
        )
        at += width


def _kinds(kinds: Mapping[str, Mapping[str, Any]]) -> Iterator[str]:
    for kind, counts in kinds.items():
        cells = "".join(
            f"<td>{counts[name]:,}</td>" for name in ("models", "findings", "new", "accepted")
        )
        mark = f'<span class="sev {_html(counts["severity"])}">{_html(counts["severity"])}</span>'
        yield f'<tr><th scope="row">{_html(kind)}</th><td class="text">{mark}</td>{cells}</tr>'


_NEWS = """<section aria-labelledby="news-title">
<h2 id="news-title">New tonight</h2>
<div class="scroll"><table class="news">
<thead><tr><th scope="col">model</th><th scope="col" class="text">cause or kind</th>\
<th scope="col" class="text">what was found</th></tr></thead>
<tbody>{rows}</tbody>
</table></div>{more}
</section>
"""
_HUB = "https://huggingface.co/"


def _news(news: Mapping[str, Any], pages: Mapping[str, str]) -> str:
    """What is new, each with links to the model at its commit and to its page; or nothing."""
    rows = "".join(new_row(item, pages.get(item["model"])) for item in news["listed"])
    more = f"<p>and {news['more']:,} more, in changes.csv</p>" if news["more"] else ""
    return _NEWS.format(rows=rows, more=more) if rows else ""


def new_row(item: Mapping[str, Any], page: str | None = None) -> str:
    commit = f"/tree/{item['commit']}" if item["commit"] else ""
    address = _html(_HUB + quote(printable(f"{item['model']}{commit}")))
    inside = f" ({item['component']})" if item["component"] else ""
    mark = f'<span class="sev {item["severity"]}">{_html(item["what"])}</span>'
    said = _html(item["said"][:_MOST_SAID])
    return (
        f'<tr><th scope="row"><a href="{address}"><bdi>{_html(item["model"])}</bdi></a>'
        f"{_html(inside)}{_link(page, item['model'])}</th>"
        f'<td class="text">{mark}</td><td class="text"><bdi>{said}</bdi></td></tr>'
    )


def _link(page: str | None, model: str) -> str:
    if page is None:
        return ""
    whose = f'<span class="hidden"> of <bdi>{_html(model)}</bdi></span>'
    return f' <a href="{_html(page)}">report{whose}</a>'


_CAUSES = """<section>
<h2>Causes</h2>
<table class="kinds">
<thead><tr><th scope="col">cause</th><th scope="col">models</th><th scope="col">findings</th>\
<th scope="col">new</th></tr></thead>
<tbody>{rows}</tbody>
</table>
</section>
"""


def _causes(causes: Mapping[str, Mapping[str, Any]]) -> str:
    """A section; nothing where no finding has a cause."""
    rows = "".join(
        f'<tr><th scope="row">{_html(name)}</th>'
        + "".join(f"<td>{counts[key]:,}</td>" for key in ("models", "findings", "new"))
        + "</tr>"
        for name, counts in causes.items()
    )
    return _CAUSES.format(rows=rows) if rows else ""


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


def _html(text: str) -> str:
    return escape(printable(text))
