"""Two checkpoints side by side: tensors, parameters by module, keys of the config."""

from auditor.comparing.comparison import Changed, Comparison, ConfigChange, Lost, compare
from auditor.comparing.side import Side, SideTensor, side_of

__all__ = [
    "Changed",
    "Comparison",
    "ConfigChange",
    "Lost",
    "Side",
    "SideTensor",
    "compare",
    "side_of",
]
