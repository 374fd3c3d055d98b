"""GGUF: the tensors of a model under llama.cpp's names."""

from auditor.layouts.gguf.layout import LAYOUT

__all__ = ["LAYOUT"]
