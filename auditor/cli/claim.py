"""The `audit claim` command: is a published number right, and what was counted if not."""

import csv
import io
from collections.abc import Iterator, Sequence
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from auditor.audit.claiming import Claim
from auditor.audit.claiming import claim as judged
from auditor.claims.verdict import Verdict
from auditor.cli.console import (
    CLEAN,
    FINDINGS,
    UNAUDITED,
    QuietOption,
    SourceChoice,
    SourceOption,
    TokenOption,
    guarded,
    put,
    say,
    talk,
)
from auditor.errors import SourceError, UsageError
from auditor.messages import quoted

_LARGEST_FILE = 4 * 1024 * 1024  # bytes of claims.csv
_COLUMNS = ("model", "part", "claim")


class ClaimFormat(StrEnum):
    """How verdicts are printed."""

    TERMINAL = "terminal"
    JSON = "json"


def claim(  # noqa: PLR0913 - one parameter for each option
    model: Annotated[
        str | None, typer.Argument(metavar="MODEL", show_default=False, help="As for audit MODEL.")
    ] = None,
    claims: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="COUNT",
            show_default=False,
            help="109482240, 110M, 8x7B, '72.1 MB', 3.8亿, or a formula: 'V*D + L*D'.",
        ),
    ] = None,
    *,
    part: Annotated[
        list[str] | None,
        typer.Option(
            "--part",
            metavar="PART=COUNT",
            show_default=False,
            help="Of a module prefix, or of embeddings, encoder, attention, ffn, norm, bias, head.",
        ),
    ] = None,
    file: Annotated[
        Path | None,
        typer.Option("--file", show_default=False, help="A CSV: columns model, part, claim."),
    ] = None,
    target: Annotated[
        str | None,
        typer.Option("--as", metavar="CLASS", show_default=False, help="The class to count."),
    ] = None,
    form: Annotated[
        ClaimFormat, typer.Option("--format", help="For people, or an object a claim.")
    ] = ClaimFormat.TERMINAL,
    source: SourceOption = SourceChoice.HUB,
    token: TokenOption = None,
    quiet: QuietOption = False,
) -> None:
    """Confirm a published count of MODEL, or say which slips make it come out.

    Exit codes: 0 confirmed, 1 refuted, 2 usage, 3 nothing to compare with.
    """
    with guarded():
        asked = dict(_asked(model, claims or [], part or [], file))
        tell = talk(quiet=quiet)
        codes = []
        for name, some in asked.items():
            try:
                verdicts = judged(
                    name, some, target=target, source=source.value, token=token, say=tell
                )
            except SourceError as error:
                say(f"{name}: {error.reason}: {error}")
                codes.append(UNAUDITED)
                continue
            if not quiet:
                put(_text(name, verdicts, form))
            codes.append(_code(verdicts))
    raise typer.Exit(FINDINGS if FINDINGS in codes else max(codes))


def _asked(
    model: str | None, claims: Sequence[str], parts: Sequence[str], file: Path | None
) -> Iterator[tuple[str, list[Claim]]]:
    """The claims of each model."""
    found: dict[str, list[Claim]] = {}
    if model is not None:
        some = [Claim(text) for text in claims]
        for each in parts:
            name, equals, text = each.rpartition("=")
            if not equals:
                raise UsageError(f"--part {quoted(each)}: say it as attention=2359296")
            some.append(Claim(text.strip(), name.strip()))
        if some:
            found[model] = some
    if file is not None:
        for name, claim in _of_file(file):
            found.setdefault(name, []).append(claim)
    if not found:
        raise UsageError("nothing is claimed: give MODEL and a count, --part or --file")
    yield from found.items()


def _of_file(file: Path) -> Iterator[tuple[str, Claim]]:
    try:
        content = file.read_bytes()
        if len(content) > _LARGEST_FILE:
            raise UsageError(f"--file {quoted(str(file))}: more than {_LARGEST_FILE:,} bytes")
        rows = list(csv.DictReader(io.StringIO(content.decode("utf-8-sig"))))
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise UsageError(f"--file {quoted(str(file))}: {error}") from None
    for number, row in enumerate(rows, start=2):
        model, part, text = (row.get(column) or "" for column in _COLUMNS)
        if not model or not text:
            columns = ", ".join(_COLUMNS)
            raise UsageError(f"--file {quoted(str(file))}, line {number}: expected {columns}")
        yield model.strip(), Claim(text.strip(), part.strip())


def _text(model: str, verdicts: Sequence[Verdict], form: ClaimFormat) -> str:
    from auditor.formats import claims  # noqa: PLC0415 - beside its only use

    as_json = form is ClaimFormat.JSON
    return claims.verdicts_as_json(model, verdicts) if as_json else claims.render(model, verdicts)


def _code(verdicts: Sequence[Verdict]) -> int:
    said = {verdict.verdict for verdict in verdicts}
    if "refuted" in said:
        return FINDINGS
    return UNAUDITED if "nothing to compare with" in said else CLEAN
