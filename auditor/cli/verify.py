"""The `audit verify` command: a statement against the model that it is about."""

from pathlib import Path

import typer

from auditor.cli.console import (
    CLEAN,
    FINDINGS,
    UNAUDITED,
    fail,
    guarded,
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
from auditor.publishing.verification import Statement, Verification, compare, read_statement


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
) -> None:
    """Check a statement: signature, digests and the audit itself.

    The model is audited again. Exit codes: 0 verified; 1 something differs; 2 usage; 3 something
    could not be checked.
    """
    with guarded():
        if key is not None and identity is not None:
            raise UsageError("--key and --identity are both given, expected one at most")
        if identity is None and issuer is not None:
            raise UsageError("--issuer needs --identity")
        stated, is_checked = _signed(statement, key, identity, issuer, quiet=quiet)
        result = _compared(
            stated, model, statement, source, token, is_checked=is_checked, quiet=quiet
        )
        for line in result.notes if not quiet else ():
            say(line)
        for line in result.differences:
            say(f"differs: {line}")
        for line in result.unknown:
            say(f"not checked: {line}")
        if result.differences:
            code = FINDINGS
        elif result.unknown or (stated.bundle is not None and not is_checked):
            code = UNAUDITED
        else:
            code = CLEAN
        if code == CLEAN and not quiet:
            about = quoted(stated.model) if stated.model else "a folder"
            count = len(stated.predicate.files)
            say(f"verified: {count:,} files and the audit are as stated, of {about}")
    raise typer.Exit(code)


def _signed(
    path: Path, key: Path | None, identity: str | None, issuer: str | None, *, quiet: bool
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
            if not quiet:
                say("not signed")
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
    if is_checked and not quiet:
        say(f"signed by {quoted(str(key or identity))}")
    return stated, is_checked


def _compared(  # noqa: PLR0913 - the options of the command
    stated: Statement,
    model: str | None,
    path: Path,
    source: str,
    token: str | None,
    *,
    is_checked: bool,
    quiet: bool,
) -> Verification:
    """Audit the model again, and compare the statements."""
    requested = model or stated.model
    if requested is None:
        raise UsageError("the statement is about a folder; name it: audit verify STATEMENT FOLDER")
    try:
        attested = attest(
            requested,
            target=stated.predicate.asClass,
            source=source,
            token=token,
            without=path,
            say=talk(quiet=quiet),
        )
        observed = read_statement(attested.statement)
        return compare(
            stated, observed, attested.snapshot, is_checked=is_checked, is_named=model is not None
        )
    except SourceError as error:
        fail(UNAUDITED, f"not checked: {requested}: {error.reason}: {error}")
    except SignatureError as error:
        fail(UNAUDITED, f"not checked: {requested} cannot be stated: {error}")
