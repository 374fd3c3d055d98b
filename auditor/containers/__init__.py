"""Containers: pure functions from the first bytes of a file to what it declares. No I/O."""

from auditor.containers.bounded_json import lfs_pointer_size, parse_object
from auditor.containers.index import Index, parse_index
from auditor.containers.safetensors import MAX_HEADER, Header, header_span, parse_header, size_fault

__all__ = [
    "MAX_HEADER",
    "Header",
    "Index",
    "header_span",
    "lfs_pointer_size",
    "parse_header",
    "parse_index",
    "parse_object",
    "size_fault",
]
