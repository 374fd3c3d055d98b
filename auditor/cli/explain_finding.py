"""The `audit explain-finding` command: what a kind or a cause means, from the package alone."""

from typing import Annotated

import typer

from auditor.cli.console import guarded, put, terminal
from auditor.errors import UsageError
from auditor.formats import meanings
from auditor.messages import meant, quoted


def explain_finding(
    names: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[KIND|CAUSE]...",
            show_default=False,
            help="As reports name them: missing, wrapper-prefix. Without one: all, a line each.",
        ),
    ] = None,
) -> None:
    """Say what a kind of finding or a cause means, and what to do about it."""
    with guarded():
        kinds = reversed(meanings.kind_meanings())  # of two that share a name the graver counts
        known = {one.name: one for one in (*kinds, *meanings.cause_meanings())}
        for name in names or ():
            if name not in known:
                further = meant(name, known) or "; without a name all are listed"
                raise UsageError(f"no finding and no cause is called {quoted(name)}{further}")
        width, color = terminal()
        if names:
            asked = [known[name] for name in names]
            put(meanings.render(asked, width=width, color=color))
        else:
            everything = [*known.values()]
            put(meanings.overview(everything, width=width, color=color))
