"""MLX: rows of words of 32 bits, under the names of mlx_lm."""

from auditor.layouts.mlx.layout import LAYOUT

__all__ = ["LAYOUT"]
