"""modelopt: NVFP4, FP8 and others, as NVIDIA's Model Optimizer exports them."""

from auditor.layouts.modelopt.layout import LAYOUT

__all__ = ["LAYOUT"]
