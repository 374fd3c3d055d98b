"""How deep modules are listed, drawn."""

from hypothesis import strategies as st

from auditor.tensors import Depth


def depths() -> st.SearchStrategy[Depth]:
    """With all layers, and without what is in those below some depth."""
    return st.builds(Depth, st.integers(0, 5), st.none() | st.integers(0, 5))


def listed(depth: Depth, prefix: str) -> bool:
    """Whether a module is listed, said once more."""
    parts = prefix.split(".") if prefix else []
    if depth.layers is not None and any(map(str.isdecimal, parts[depth.layers : -1])):
        return False
    return len(parts) <= depth.most
