"""What is taken of an answer: a whole body, or a part of a file, within bounds and as announced."""

import re
from collections.abc import Callable

from auditor.checkpoint.snapshot import RepoFile
from auditor.containers.safetensors import LENGTH_BYTES, MAX_HEADER
from auditor.downloader.headers import Received
from auditor.downloader.response_body import Answer, whole_number
from auditor.downloader.retry import PassingError
from auditor.errors import Reason, SourceError
from auditor.messages import quoted
from auditor.tensors import Span

# Bytes up to which a file is read from its start where the server does not know ranges: the
# longest safetensors header. The directory of a torch file of 7 GB lies behind all of its data.
_MOST_SKIPPED = MAX_HEADER + LENGTH_BYTES

_CONTENT_RANGE = re.compile(r"bytes (\d{1,18})-(\d{1,18})/(\d{1,18}|\*)")


def whole_body(limit: int, file: RepoFile | None) -> Callable[[Answer], bytes]:
    """Takes a whole body of at most `limit` bytes, as long as the listing says."""

    def take(answer: Answer) -> bytes:
        name = file.name if file else "the listing"
        if answer.partial:
            raise SourceError(Reason.BAD_RESPONSE, f"{answer.host} sent only a part of {name}")
        content = answer.body.upto(limit + 1)
        if len(content) > limit:
            raise too_large(name, "more", limit)
        if file and file.size not in {None, len(content)}:
            detail = f"{answer.host} sent {len(content):,} bytes of {quoted(name)}"
            raise PassingError(Reason.BAD_RESPONSE, f"{detail}, which has {file.size:,}")
        return content

    return take


def part_of_file(
    file: RepoFile, span: Span, end: Callable[[bytes, int | None], int]
) -> Callable[[Answer], Received]:
    """Takes the span of a 206; of a 200, which ignores the range, no more than the header."""

    def take(answer: Answer) -> Received:
        size = _size(answer, file, span)
        if answer.partial:
            stop = span.stop if size is None else min(span.stop, size)
            data = answer.body.upto(stop - span.start)
        else:
            if span.stop > _MOST_SKIPPED:
                raise SourceError(Reason.BAD_RESPONSE, _unranged(answer, file, span))
            data = answer.body.upto(span.stop)
            stop = max(span.stop, end(data, size)) if span.start == 0 else span.stop
            stop = stop if size is None else min(stop, size)
            data = answer.body.upto(stop)[span.start :]
        if len(data) != stop - span.start:
            detail = f"{answer.host} sent {len(data):,} bytes of {stop - span.start:,} asked for"
            raise PassingError(Reason.BAD_RESPONSE, detail)
        return Received(data, size)

    return take


def ranged_part(file: RepoFile, span: Span) -> Callable[[Answer], bytes]:
    """Takes the span of a 206; of a 200 nothing: what it begins with is not what was asked for."""

    def take(answer: Answer) -> bytes:
        size = _size(answer, file, span)
        if not answer.partial:
            raise SourceError(Reason.BAD_RESPONSE, _unranged(answer, file, span))
        if size is not None and span.stop > size:
            detail = f"{quoted(file.name)} has {size:,} bytes, and none at {span.stop - 1:,}"
            raise SourceError(Reason.BAD_RESPONSE, detail)
        data = answer.body.upto(span.length)
        if len(data) != span.length:
            detail = f"{answer.host} sent {len(data):,} bytes of {span.length:,} asked for"
            raise PassingError(Reason.BAD_RESPONSE, detail)
        return data

    return take


def _unranged(answer: Answer, file: RepoFile, span: Span) -> str:
    whole = f"{answer.host} sends the whole of {quoted(file.name)} where a part is asked for"
    return f"{whole}, and the part at byte {span.start:,} is too far from its start to wait for"


def _size(answer: Answer, file: RepoFile, span: Span) -> int | None:
    """The whole file's size, on which the listing and every header of the answer must agree."""
    claims = {file.size, answer.linked_size}
    if answer.partial:
        claims.add(_total(answer, span))
    else:
        claims.add(answer.length)
    sizes = sorted(size for size in claims if size is not None)
    if len(sizes) > 1:
        detail = f"{answer.host} and the Hub disagree on the size of {quoted(file.name)}"
        raise PassingError(
            Reason.BAD_RESPONSE, f"{detail}: {', '.join(f'{size:,}' for size in sizes)} bytes"
        )
    return sizes[0] if sizes else None


def _total(answer: Answer, span: Span) -> int | None:
    """The size in a Content-Range, which must be of the very span that was asked for."""
    given = answer.headers.get("content-range", "")
    found = _CONTENT_RANGE.fullmatch(given)
    total = whole_number(found[3]) if found else None
    last = (span.stop if total is None else min(span.stop, total)) - 1
    if not found or (int(found[1]), int(found[2])) != (span.start, last):
        detail = f"{answer.host} was asked for {span.http_range} and sent {quoted(given)}"
        raise PassingError(Reason.BAD_RESPONSE, detail)
    return total


def too_large(name: str, size: str, limit: int) -> SourceError:
    detail = f"{quoted(name)} has {size} bytes; {limit:,} are the most that are read"
    return SourceError(Reason.TOO_LARGE, detail)
