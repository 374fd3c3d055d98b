"""Untrusted text in Markdown: as a sentence, as a name in code, and as a cell of a table.

Nothing of it becomes markup, HTML, a link, a mention of somebody or a reference to an issue.
"""

import re

from auditor.messages import printable

_MARKED = re.compile(r"[\\`*_{}\[\]()#+!|~$]")
_ENTITIES = {"&": "&amp;", "<": "&lt;", ">": "&gt;"}
_CUT = "<!-- -->"  # between characters that would make a mention, a reference or a link
# GitHub looks for these in the text that it shows, in which no backslash is left.
_LINKED = re.compile(r"(?<=@)|((?<=#)|(?<=GH-))(?=\w)|(?<=:)(?=//)|(?<=www)(?=\.)", re.IGNORECASE)
_TICKS = re.compile("`+")
_WORDS = re.compile(r"[A-Za-z0-9 (),]*")  # what needs no escape: headings, statuses, shapes


def escaped_markdown(text: str) -> str:
    """Escape a text that stands among others."""
    shown = _LINKED.sub("\0", printable(text))
    shown = "".join(_ENTITIES.get(char, char) for char in shown)
    return _MARKED.sub(r"\\\g<0>", shown).replace("\0", _CUT)


def code_span(text: str) -> str:
    """Put a name between more backticks than it has in a row."""
    shown = printable(text)
    fence = "`" * (1 + max((len(run) for run in _TICKS.findall(shown)), default=0))
    space = " " if not shown.strip() or shown[0] in "` " or shown[-1] in "` " else ""
    return f"{fence}{space}{shown}{space}{fence}"


def code_cell(text: str) -> str:
    r"""Put a name in code, for a cell of a table: a vertical line becomes \x7c.

    Readers of Markdown do not agree whether `\\|` ends a cell.
    """
    return code_span(text.replace("|", r"\x7c"))


def table_cell(text: str) -> str:
    """Return words as they are, and every other text as code."""
    return text if _WORDS.fullmatch(text) else code_cell(text)
