"""The `audit attest` command: a statement of an audit, for somebody who verifies it later."""

from collections.abc import Callable
from functools import partial
from pathlib import Path

import typer

from auditor.checkpoint.skipped import skipped_lines
from auditor.checkpoint.snapshot import Snapshot
from auditor.cli.console import (
    UNAUDITED,
    exit_code,
    fail,
    put,
    say_reason,
    talk,
    write,
)
from auditor.errors import UsageError
from auditor.formats import verdict
from auditor.messages import quoted
from auditor.options import Source
from auditor.publishing.signature import (
    SignatureError,
    UncheckedError,
    sign_with_identity,
    sign_with_key,
)
from auditor.publishing.statement import attest as attest_model
from auditor.publishing.statement import require_own_files
from auditor.publishing.verification import read_statement


def attest(  # noqa: PLR0913 - one parameter for each option
    model: str,
    *,
    output: Path | None = None,
    target: str | None = None,
    key: Path | None = None,
    keyless: bool = False,
    source: Source = "hub",
    token: str | None = None,
    quiet: bool = False,
) -> int:
    """State an audit with the digests of all files, and sign it.

    The statement follows in-toto (Statement v1), and lists what was read and the result.
    Local files are read completely for their sha256.
    Exit codes are those of the audit, and a statement is written with each but 2: 0 clean, 1
    findings, 3 not audited.
    """
    tell = talk(quiet=quiet)
    if key is not None and keyless:
        raise UsageError("--key and --keyless are both given, expected one at most")
    try:
        statement, outcome, _ = attest_model(
            model,
            target=target,
            source=source,
            token=token,
            without=output,
            accept=partial(_require_own_files, model, tell),
            say=tell,
        )
        if key is not None:
            statement = sign_with_key(statement, key, _password)
        elif keyless:
            statement = sign_with_identity(statement)
        read_statement(statement)
    except SignatureError as error:
        fail(UNAUDITED, f"{model}: no statement is written, it could not be verified: {error}")
    except UncheckedError as error:
        fail(UNAUDITED, f"{model}: {error}")
    if output is None:
        put(statement.decode())
    else:
        write(output, statement)
        signed = "signed" if key or keyless else "not signed"
        word, _ = verdict.word(outcome)
        tell(f"wrote {quoted(str(output))}: {word}, {signed}")
    say_reason(outcome)
    return exit_code(outcome)


def _require_own_files(model: str, tell: Callable[[str], None], snapshot: Snapshot) -> None:
    """Print what is not stated of a folder; raise PublishError if a link leads out of it."""
    require_own_files(model, snapshot.skipped)
    for line in skipped_lines(snapshot.skipped):
        tell(f"not stated: {line}")


def _password() -> str:
    password: str = typer.prompt("Password of the key", hide_input=True, err=True)
    return password
