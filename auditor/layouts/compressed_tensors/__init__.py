"""compressed-tensors: the dozen formats of llm-compressor."""

from auditor.layouts.compressed_tensors.layout import LAYOUT

__all__ = ["LAYOUT"]
