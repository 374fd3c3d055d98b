"""MLX: rows of 32-bit words, under the names of mlx_lm."""

from auditor.layouts.mlx.layout import LAYOUT

__all__ = ["LAYOUT"]
