"""compressed-tensors: what llm-compressor writes, in a dozen formats."""

from auditor.layouts.compressed_tensors.layout import LAYOUT

__all__ = ["LAYOUT"]
