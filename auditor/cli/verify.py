"""The `audit verify` command: a statement against the model that it is about."""

from collections.abc import Callable
from pathlib import Path

from auditor.cli.console import (
    CLEAN,
    FINDINGS,
    UNAUDITED,
    fail,
    say,
    talk,
)
from auditor.downloader.local_file import read_all
from auditor.errors import SourceError, UsageError
from auditor.messages import quoted
from auditor.options import Source
from auditor.publishing.signature import (
    SignatureError,
    UncheckedError,
    check_with_identity,
    check_with_key,
)
from auditor.publishing.statement import MAX_STATEMENT, attest
from auditor.publishing.verification import Statement, compare, read_statement


def verify(  # noqa: PLR0913 - one parameter for each option
    statement: Path,
    model: str | None = None,
    *,
    key: Path | None = None,
    identity: str | None = None,
    issuer: str | None = None,
    source: Source = "hub",
    token: str | None = None,
    quiet: bool = False,
) -> int:
    """Check a statement: signature, digests and the audit itself.

    The model is audited again. Exit codes: 0 verified; 1 something differs; 2 usage; 3 something
    could not be checked.
    """
    if key is not None and identity is not None:
        raise UsageError("--key and --identity are both given, expected one at most")
    if identity is None and issuer is not None:
        raise UsageError("--issuer needs --identity")
    tell = talk(quiet=quiet)
    stated, is_checked = _signed(statement, key, identity, issuer, tell)
    requested = model or stated.model
    if requested is None:
        raise UsageError("the statement is about a folder; name it: audit verify STATEMENT FOLDER")
    try:
        attested = attest(
            requested,
            target=stated.predicate.asClass,
            source=source,
            token=token,
            without=statement,
            say=tell,
        )
        observed = read_statement(attested.statement)
        result = compare(
            stated, observed, attested.snapshot, is_checked=is_checked, is_named=model is not None
        )
    except SourceError as error:
        fail(UNAUDITED, f"not checked: {requested}: {error.reason}: {error}")
    except SignatureError as error:
        fail(UNAUDITED, f"not checked: {requested} cannot be stated: {error}")
    is_known = not result.unknown and (stated.bundle is None or is_checked)
    for line in result.notes:
        tell(line)
    for line in (
        *(f"differs: {one}" for one in result.differences),
        *(f"not checked: {one}" for one in result.unknown),
    ):
        say(line)
    if result.differences:
        return FINDINGS
    if not is_known:
        return UNAUDITED
    about = quoted(stated.model) if stated.model else "a folder"
    tell(f"verified: {len(stated.predicate.files):,} files and the audit are as stated, of {about}")
    return CLEAN


def _signed(
    path: Path,
    key: Path | None,
    identity: str | None,
    issuer: str | None,
    tell: Callable[[str], None],
) -> tuple[Statement, bool]:
    """Read a statement; return it, and whether its signature was checked."""
    try:
        content = read_all(path, MAX_STATEMENT)
    except SourceError as error:
        raise UsageError(str(error)) from None
    try:
        stated = read_statement(content)
        if stated.bundle is None:
            if key or identity:
                fail(FINDINGS, f"differs: {quoted(str(path))} is not signed")
            tell("not signed")
        elif key is not None:
            check_with_key(stated.bundle, key)
        elif identity is not None:
            check_with_identity(stated.bundle, identity, issuer)
        else:
            say("not checked: the signature, which needs --key or --identity")
    except SignatureError as error:
        fail(FINDINGS, f"differs: {quoted(str(path))}: {error}")
    except UncheckedError as error:
        fail(UNAUDITED, f"not checked: {error}")
    is_checked = stated.bundle is not None and (key or identity) is not None
    if is_checked:
        tell(f"signed by {quoted(str(key or identity))}")
    return stated, is_checked
