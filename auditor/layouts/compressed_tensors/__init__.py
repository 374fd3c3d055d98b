"""compressed-tensors: the dozen weight formats that llm-compressor writes."""

from auditor.layouts.compressed_tensors.layout import LAYOUT

__all__ = ["LAYOUT"]
