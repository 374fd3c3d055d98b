"""AutoRound: words of GPTQ or AWQ, with different settings for single layers."""

from auditor.layouts.auto_round.layout import LAYOUT

__all__ = ["LAYOUT"]
