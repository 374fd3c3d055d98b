"""AutoRound: words of GPTQ or AWQ, with settings of their own for single layers."""

from auditor.layouts.auto_round.layout import LAYOUT

__all__ = ["LAYOUT"]
