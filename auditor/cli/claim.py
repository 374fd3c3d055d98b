"""The `audit claim` command: verdicts on published counts."""

import csv
import io
from collections import defaultdict
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path

from auditor.audit.claiming import Claim
from auditor.audit.claiming import claim as judged
from auditor.audit.default_configs import parsed_setting
from auditor.cli.console import (
    CLEAN,
    FINDINGS,
    UNAUDITED,
    put,
    say,
    talk,
)
from auditor.errors import SourceError, UsageError
from auditor.messages import quoted
from auditor.options import Source, TextFormat

_LARGEST_FILE = 4 * 1024 * 1024  # bytes of claims.csv
_COLUMNS = ("model", "part", "claim")
_NOTHING = "nothing to compare with"  # a verdict


def claim(  # noqa: PLR0913 - one parameter for each option
    model: str | None = None,
    claims: list[str] | None = None,
    *,
    part: list[str] | None = None,
    file: Path | None = None,
    target: str | None = None,
    settings: list[str] | None = None,
    form: TextFormat = "terminal",
    source: Source = "hub",
    token: str | None = None,
    quiet: bool = False,
) -> int:
    """Confirm a published count, or name the mistakes behind it.

    Exit codes: 0 confirmed, 1 refuted, 2 usage, 3 nothing to compare with.
    """
    from auditor.formats.claims import render, verdicts_as_json  # noqa: PLC0415 - for this alone

    claims_by_model = _claims_by_model(model, claims or [], part or [], file)
    values, tell = dict(map(parsed_setting, settings or ())), talk(quiet=quiet)
    request = partial(judged, target=target, source=source, token=token, settings=values, say=tell)
    words = set()
    for name, model_claims in claims_by_model.items():
        try:
            verdicts = request(name, model_claims)
        except SourceError as error:
            say(f"{name}: {error.reason}: {error}")
            words.add(_NOTHING)
            continue
        if not quiet:
            put((verdicts_as_json if form == "json" else render)(name, verdicts))
        words |= {verdict.verdict for verdict in verdicts}
    if "refuted" in words:
        return FINDINGS
    return UNAUDITED if _NOTHING in words else CLEAN


def _claims_by_model(
    model: str | None, claims: Sequence[str], parts: Sequence[str], file: Path | None
) -> dict[str, list[Claim]]:
    claims_by_model: dict[str, list[Claim]] = defaultdict(list)
    if model is not None and (claims or parts):
        claims_by_model[model] += map(Claim, claims)
        for text in parts:
            name, equals, count = text.rpartition("=")
            if not equals:
                raise UsageError(
                    f"--part is {quoted(text)}, expected PART=COUNT: attention=2359296"
                )
            claims_by_model[model].append(Claim(count.strip(), name.strip()))
    for name, claim in _claims_of_file(file) if file is not None else ():
        claims_by_model[name].append(claim)
    if not claims_by_model:
        raise UsageError("no claim is given: give MODEL and a count, --part or --file")
    return claims_by_model


def _claims_of_file(file: Path) -> Iterator[tuple[str, Claim]]:
    name = f"--file {quoted(str(file))}"
    try:
        content = file.read_bytes()
        if len(content) > _LARGEST_FILE:
            raise UsageError(f"{name} has more than {_LARGEST_FILE:,} bytes")
        rows = list(csv.DictReader(io.StringIO(content.decode("utf-8-sig"))))
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise UsageError(f"{name}: {error}") from None
    for number, row in enumerate(rows, start=2):
        model, part, text = ((row.get(column) or "").strip() for column in _COLUMNS)
        if not model or not text:
            raise UsageError(f"{name}, line {number}: expected {', '.join(_COLUMNS)}")
        yield model, Claim(text, part)
