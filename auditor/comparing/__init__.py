"""Two checkpoints side by side: tensors, parameters by module, keys of the config."""

from auditor.comparing.comparison import (
    Changed,
    Comparison,
    ConfigChange,
    Lost,
    Side,
    SideTensor,
    compare,
    side_of,
)

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
