"""Weight files that end too soon, by their size and header."""

from auditor.checkpoint.snapshot import WeightHeader
from auditor.containers.safetensors import LENGTH_BYTES, MAX_HEADER, Header
from auditor.containers.weight_formats import Table, parser
from auditor.errors import CheckpointError

_CUT = "truncated"  # in the errors of other formats' readers for a file that ends too soon


def cut_off(head: WeightHeader) -> str:
    """Return a predicate, `ends after 8 of 90 bytes`, for a file that is cut; "" if it is not."""
    table, size, fault = head.parsed, head.size, ""
    if head.pointed is not None or size is None:
        return ""
    match table:
        case _ if size == 0:
            fault = "is empty"
        case Header():
            whole = LENGTH_BYTES + table.header_length + table.data_length
            fault = f"ends after {size:,} of {whole:,} bytes" if size < whole else ""
        case Table():
            fault = "ends too soon" if any(_CUT in one for one in table.size_faults) else ""
        case CheckpointError() if parser(head.name) is not None:
            fault = f"ends too soon, after {size:,} bytes" if _CUT in str(table) else ""
        case _ if size < LENGTH_BYTES:
            fault = f"ends after {size:,} bytes, before its header"
        case _:
            length = int.from_bytes(head.prefix[:LENGTH_BYTES], "little")
            is_json = head.prefix[LENGTH_BYTES:].lstrip()[:1] in {b"", b"{"}
            if is_json and size - LENGTH_BYTES < length <= MAX_HEADER:
                fault = f"ends after {size:,} bytes, within its header of {length:,}"
    return fault
