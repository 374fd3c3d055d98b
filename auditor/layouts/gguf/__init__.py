"""GGUF: maps the tensors that llama.cpp's converter writes to the model's tensors."""

from auditor.layouts.gguf.layout import LAYOUT

__all__ = ["LAYOUT"]
