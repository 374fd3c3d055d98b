"""The plain layout: one stored tensor is one tensor of the model, one element one parameter."""

from auditor.tensors import DTYPE_BITS, StoredTensor

_FLOATS = ("F", "BF", "C")  # how the names of the format's learnable dtypes begin


def is_float(dtype: str) -> bool:
    """Whether training could have produced numbers of this dtype."""
    return dtype.startswith(_FLOATS)


def learned(tensor: StoredTensor) -> int:
    """The parameters that a tensor holds when nothing but its header is known.

    Integers and booleans are not trained: 0. So is a tensor that only an index names. A dtype that
    the safetensors format does not have (INT4, Q4_K) is what a packed parameter is made of.
    """
    if tensor.elements is None or tensor.dtype is None:
        return 0
    packed = tensor.dtype not in DTYPE_BITS
    return tensor.elements if packed or is_float(tensor.dtype) else 0
