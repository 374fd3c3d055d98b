"""fp8: weights of 8-bit floats in the model's own shape, with scales beside them."""

from auditor.layouts.fp8.layout import LAYOUT

__all__ = ["LAYOUT"]
