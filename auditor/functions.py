"""Functions of the Python API that do what commands do: `memory`, `fix` and `snapshot`."""

from collections.abc import Callable, Collection, Sequence
from os import PathLike, fspath
from pathlib import Path
from typing import Any

from auditor.audit.expected import require_known_class
from auditor.audit.pipeline import audit
from auditor.checkpoint.selecting import with_companions
from auditor.checkpoint.snapshot import Snapshot
from auditor.checkpoint.snapshot_reader import load
from auditor.checkpoint.snapshot_writer import dump
from auditor.diagnosis.permissions import Allow
from auditor.downloader.fetching import fetch
from auditor.errors import Reason, SourceError, UsageError
from auditor.fixing.of_folder import fix_folder, plan_for_folder
from auditor.fixing.plan import Plan
from auditor.formats.memory import as_object
from auditor.formats.memory_needs import COMMON_DTYPES, TO_LAYERS, Use, checked_dtype
from auditor.messages import log_line
from auditor.writing import output_file


def memory(  # noqa: PLR0913 - one keyword for each choice a caller has
    model: str | PathLike[str],
    *,
    dtypes: Sequence[str] = COMMON_DTYPES,
    context: int | None = None,
    batch: int = 1,
    concurrency: int | None = None,
    gpu: str | None = None,
    cache_dtype: str | None = None,
    target: str | None = None,
    source: str = "hub",
    token: str | None = None,
    say: Callable[[str], None] = log_line,
) -> dict[str, Any]:
    """Return the bytes that a model takes: stored, loaded, with a KV cache, in training.

    `dtypes` are the dtypes of loaded weights ("bf16", "int8", "4bit"), `context` the tokens in the
    cache of each of `batch` sequences, or of `concurrency` sequences in vLLM's paged cache, and
    `gpu` a card or its memory ("RTX 4090", "24GB"; None: each card of a table). The other arguments
    are those of `audit`. The result is the object that `audit memory --format json` prints. Raise
    UsageError for an unknown dtype or card.
    """
    use = Use(
        dtypes=tuple(dict.fromkeys(checked_dtype("dtypes", name) for name in dtypes)),
        context=context,
        batch=batch,
        concurrency=concurrency,
        gpu=gpu,
        cache_dtype=None if cache_dtype is None else checked_dtype("cache_dtype", cache_dtype),
    )
    outcome = audit(
        model,
        target=target,
        source=source,
        token=token,
        depth=TO_LAYERS,
        kv_cache=True,
        say=say,
    )
    return as_object(outcome, use)


def fix(  # noqa: PLR0913 - one keyword for each choice a caller has
    folder: str | PathLike[str],
    *,
    apply: bool = False,
    to: str | PathLike[str] | None = None,
    link: bool = False,
    target: str | None = None,
    allow: Collection[str] = (),
    engines: Sequence[str] = (),
    say: Callable[[str], None] = log_line,
) -> Plan:
    """Plan the repair of a folder's names, config and index; write it if `apply` is true.

    The fixed folder is a complete copy, FOLDER.fixed or `to`; with `link`, unchanged files are hard
    links. The folder itself stays as it is.

    The plan has the outcomes `before` and `after` it, the `causes` that it removes, the causes that
    are `left` and the `changes` of files. `allow` are changes that need permission, as for
    `audit fix --allow`; config keys that `engines` read are added, as for `--for`. Raise UsageError
    if it is not a folder, SourceError if it cannot be read, FixError if the fixed folder cannot be
    written; then nothing is left of it.
    """
    if target is not None:
        require_known_class(target)
    try:
        allowed = [Allow(name) for name in allow]
    except ValueError:
        raise UsageError(f"allow is {[*allow]}, expected some of {', '.join(Allow)}") from None
    planned = plan_for_folder(fspath(folder), target, allowed, say, tuple(engines))
    if apply and planned.plan.changes:
        fix_folder(planned, None if to is None else Path(to), link=link, say=say)
    return planned.plan


def snapshot(
    model: str | PathLike[str],
    output: str | PathLike[str] | None = None,
    *,
    source: str = "hub",
    token: str | None = None,
    say: Callable[[str], None] = log_line,
) -> Snapshot:
    """Return all that an audit reads of a checkpoint: config, headers, index and sizes.

    `examine` audits it. With `output` it is also written to that file, compressed if the name ends
    in .gz, which `audit` takes as a model. Raise SourceError if the checkpoint cannot be read or is
    too large for a file, UsageError for an impossible request, OSError if writing fails.
    """
    fetched = fetch(fspath(model), source=source, token=token, say=say, choose=with_companions)
    if output is not None:
        path = Path(output)
        content = snapshot_content(fetched, path.name)
        with output_file(path) as file:
            file.write(content)
    return fetched


def snapshot_content(snapshot: Snapshot, name: str) -> bytes:
    """Return a snapshot file; raise SourceError if it is too large to be read again."""
    content = dump(snapshot, name)
    try:
        load(content, name)
    except UsageError as fault:
        raise SourceError(Reason.TOO_LARGE, f"no snapshot is written: {fault}") from None
    return content
