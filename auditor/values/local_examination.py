"""`audit FOLDER --values`: all numbers of the audited files, and what they add to an outcome."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

from msgspec.structs import replace

from auditor.checkpoint.snapshot import Snapshot
from auditor.downloader.local_blocks import open_block_file
from auditor.downloader.local_file import read_all
from auditor.errors import SourceError
from auditor.messages import listed
from auditor.reconciler.ignore import Ignore
from auditor.reconciler.tensor_values import ValuesRead
from auditor.report import Report, Unaudited
from auditor.tensors import StoredTensor
from auditor.values.placing import place_tensors
from auditor.values.sampling import LookBeside
from auditor.values.tokens import Tokens, read_tokens
from auditor.values.unread import without_headers_alone

_LARGEST_TOKENIZER = 64 * 1024 * 1024  # bytes; that of Gemma 3 has 33 million


def with_numbers(  # noqa: PLR0913 - what is read, how, and beside what
    outcome: Report | Unaudited,
    snapshot: Snapshot,
    ignore: tuple[Ignore, ...],
    *,
    statistics: bool,
    show: Callable[[str | None], None],
    beside: LookBeside | None = None,
) -> Report | Unaudited:
    """The outcome with all numbers of its files read, or with why they were not.

    A file that changes while it is read, or is gone, makes it Unaudited: nothing is known of it.
    """
    if snapshot.folder is None:
        raise ValueError("the weight files are not on this machine")
    try:
        placed, left_out = place_tensors(snapshot, snapshot.folder)
        from auditor.values.evidence import Evidence, LocalBytes  # noqa: PLC0415 - needs numpy
        from auditor.values.findings import with_findings  # noqa: PLC0415 - likewise
        from auditor.values.local_numbers import NumbersReader  # noqa: PLC0415 - likewise

        reader = NumbersReader(statistics=statistics, show=show)
        tensors = reader.read(placed)
        known = {one.name for one in tensors}
        unread = [one.tensor for one in placed if one.tensor.name not in known]
        read = ValuesRead(
            tensors=tensors,
            bytes=sum(one.span.length for one in placed if one.tensor.name in known),
            of=sum(one.span.length for one in placed),
            of_tensors=len(placed),
        )
        outcome = replace(
            outcome,
            values=read,
            unchecked=(
                *without_headers_alone(outcome),
                *_unread_dtypes(unread),
                *left_out,
            ),
        )
        with ExitStack() as stack:
            paths = sorted({one.path for one in placed})
            files = {path: stack.enter_context(open_block_file(path)) for path in paths}
            evidence = Evidence(
                outcome=outcome,
                snapshot=snapshot,
                placed={one.tensor.name: one for one in reversed(placed)},
                values={one.name: one for one in reversed(tensors)},
                bytes=LocalBytes(files),
            )
            evidence, new = beside(evidence) if beside else (evidence, ())
            return with_findings(evidence, local_tokens(snapshot.folder), ignore, new)
    except SourceError as error:
        return outcome.as_unaudited(error.reason, str(error))


def local_tokens(folder: Path) -> Tokens:
    """What the tokenizer in the folder has; files that are too large or not there say nothing."""

    def content(name: str) -> bytes | None:
        try:
            return read_all(folder / name, _LARGEST_TOKENIZER)
        except SourceError:
            return None

    return read_tokens(content)


def _unread_dtypes(tensors: list[StoredTensor]) -> Iterator[str]:
    if tensors:
        dtypes = listed(sorted({one.dtype or "" for one in tensors}))
        yield f"values of {len(tensors):,} tensors: numbers of {dtypes} are not read"
