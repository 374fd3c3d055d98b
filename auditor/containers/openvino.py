"""The reader of OpenVINO's .xml: where its constants lie in the .bin of the same name."""

import re

from auditor.containers.weight_formats import NeededFile, PartialFile, Table
from auditor.tensors import Span

_MOST = 20 * 1024 * 1024  # bytes of an .xml that are read; that of a model of 70B has 8 MB
_DATA = re.compile(rb"<data\s([^<>]{1,2000})>")
_PLACE = re.compile(rb'\b(offset|size)="(\d{1,18})"')


def parse(file: str, sparse: PartialFile) -> Table:
    """Return the .bin, with the bytes that the constants need: the end of the last one."""
    content = sparse.read(Span(0, min(sparse.size, _MOST)))
    least = 0
    for data in _DATA.finditer(content):
        places = {key: int(value) for key, value in _PLACE.findall(data[1])}
        if len(places) == 2:  # noqa: PLR2004 - both
            least = max(least, sum(places.values()))
    faults = () if sparse.size > _MOST or b"</net>" in content[-4096:] else ("has no end: </net>",)
    size_faults = tuple(f"{file} is truncated: it {fault}" for fault in faults)
    needs = (NeededFile(f"{file[: -len('xml')]}bin", least),) if least else ()
    return Table(file=file, tensors=(), needs=needs, size_faults=size_faults)
