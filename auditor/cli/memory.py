"""The `audit memory` command: memory of a loaded model, with its cache, and in training."""

from functools import partial

from auditor.audit.pipeline import audit
from auditor.cli.console import (
    CLEAN,
    exit_code,
    outcomes_of,
    put,
    say,
    say_reason,
    talk,
    terminal,
)
from auditor.errors import Reason
from auditor.findings import BadConfig
from auditor.formats import memory as shown
from auditor.formats.fits import card_of
from auditor.formats.memory_needs import COMMON_DTYPES, TO_LAYERS, Use, checked_dtype
from auditor.options import FailOn, Source, TextFormat
from auditor.report import Unaudited


def memory(  # noqa: PLR0913 - one parameter for each option
    models: list[str],
    *,
    dtypes: list[str] | None = None,
    context: int | None = None,
    batch: int = 1,
    concurrency: int | None = None,
    gpu: str | None = None,
    cache_dtype: str | None = None,
    target: str | None = None,
    form: TextFormat = "terminal",
    source: Source = "hub",
    token: str | None = None,
    quiet: bool = False,
) -> int:
    """Print what MODEL takes in memory, loaded and in training.

    Activations, workspaces and the program itself are not included. A config without weights is
    enough. Exit codes are those of audit without findings.
    """
    if gpu is not None:
        card_of(gpu)  # an unknown card is refused before anything is read
    chosen = tuple(checked_dtype("--dtype", name) for name in dtypes or ())
    use = Use(
        dtypes=tuple(dict.fromkeys(chosen)) or COMMON_DTYPES,
        context=context,
        batch=batch,
        concurrency=concurrency,
        gpu=gpu,
        cache_dtype=cache_dtype and checked_dtype("--cache-dtype", cache_dtype),
    )
    audited = partial(
        audit,
        target=target,
        source=source,
        token=token,
        depth=TO_LAYERS,
        kv_cache=True,
        say=talk(quiet=quiet),
    )
    width, color = terminal()
    code = CLEAN
    for outcome in outcomes_of(models, audited):
        for finding in outcome.findings:
            if BadConfig.describes(finding):
                say(f"{outcome.requested}: {finding.kind}: {finding.reason}")
        if form == "json":
            put(shown.as_json(outcome, use))
        elif outcome.observed or outcome.expected:
            put(shown.render(outcome, use, width=width, color=color))
        by_config = isinstance(outcome, Unaudited) and outcome.reason is Reason.NO_WEIGHTS
        if not (by_config and outcome.expected):  # a config is enough
            code = max(code, exit_code(outcome, FailOn.NEVER))
            say_reason(outcome)
    return code
