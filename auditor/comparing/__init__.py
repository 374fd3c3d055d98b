"""The comparison of two checkpoints: tensors, their bytes and numbers, config keys, modules.

Each of the two checkpoints is called a side: A is the first, B the second.
"""

from auditor.comparing.differences import compare, renaming
from auditor.comparing.records import (
    BytesCompared,
    Changed,
    Comparison,
    ConfigChange,
    Lost,
    NumbersCompared,
)
from auditor.comparing.sides import Side, SideTensor, side_of, stored_pairs

__all__ = [
    "BytesCompared",
    "Changed",
    "Comparison",
    "ConfigChange",
    "Lost",
    "NumbersCompared",
    "Side",
    "SideTensor",
    "compare",
    "renaming",
    "side_of",
    "stored_pairs",
]
