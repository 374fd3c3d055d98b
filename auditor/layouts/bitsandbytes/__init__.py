"""bitsandbytes: LLM.int8(), and the 4-bit types nf4 and fp4."""

from auditor.layouts.bitsandbytes.layout import LAYOUT

__all__ = ["LAYOUT"]
