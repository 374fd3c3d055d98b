"""Cases of `tests/cases/bad_input`: the command audits them, and must do no harm."""

import re
from collections.abc import Callable
from functools import cache
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

from support.bad_input.making import whole
from support.bad_input.running import Run, assert_harmless, environment, run, tree
from support.cases import Case, checked, kinds_of

_KEYS = {"exit", "verdict", "reason", "says", "parts"}


@cache
def clean() -> Run:
    """Return the audit of a clean folder, with which the memory of others is compared."""
    top = Path(mkdtemp(prefix="case-clean-"))
    return run(str(whole(top / "m")), "--format", "json", env=environment(top / "home"), cwd=top)


def observed_by_command(case: Case, folder: Path) -> dict[str, Any]:
    """Audit the folder; return what the command says of each key of the expectation."""
    place = folder.parent
    env = environment(place / "home")
    (place / "cwd").mkdir()
    before = tree(place)
    path = case.keys.get("path", folder.name)
    model = path if path.startswith("/") else f"{place}/{path}"
    ran = run(model, "--format", "json", *case.keys.get("options", ()), env=env, cwd=place / "cwd")
    assert_harmless(ran, clean())
    assert tree(place) == before
    outcome = ran.outcome
    expected = checked(case.keys["expect"], _KEYS | kinds_of(), case.name)
    answers: dict[str, Callable[[], Any]] = {
        "exit": lambda: ran.code,
        "verdict": lambda: outcome["verdict"],
        "reason": lambda: outcome["reason"],
        "says": lambda: _said(expected["says"], ran, outcome),
        "parts": lambda: [part["component"] for part in outcome["parts"]],
    }
    found = {key: answers[key]() for key in expected if key in answers}
    counts = dict.fromkeys(expected.keys() - answers.keys(), 0)
    findings = [one for part in (outcome, *outcome["parts"]) for one in part["findings"]]
    for finding in findings:
        if finding["severity"] != "info" or finding["kind"] in counts:
            kind, names = finding["kind"], finding["names"]
            count = 1 if kind.startswith("bad-") else max(len(names), 1)  # that of a file is one
            counts[kind] = counts.get(kind, 0) + count
    assert not any("\n" in one["reason"] for one in findings)
    if outcome["residual"]:
        found["residual"] = outcome["residual"]
    return {**found, **counts}


def _said(pattern: str, ran: Run, outcome: dict[str, Any]) -> str:
    """Return the pattern if the last line on stderr or a finding's reason fits it, else these."""
    texts = ran.stderr.splitlines()[-1:]
    for part in (outcome, *outcome["parts"]):
        texts += [one["reason"] for one in part["findings"]]
    is_said = any(re.search(pattern, text) for text in texts)
    return pattern if is_said else "; ".join(texts)
