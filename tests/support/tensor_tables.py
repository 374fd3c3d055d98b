"""Lists of tensors as an audit would make them."""

from auditor.reconciler.tensor_rows import TensorRow


class ListedTensors:
    """In the place of a TensorTable."""

    def __init__(self, *rows: TensorRow) -> None:
        self._rows = rows

    def rows(self) -> tuple[TensorRow, ...]:
        return self._rows


def tensor(name: str, *shape: int, file: str | None = "model.safetensors") -> TensorRow:
    """A tensor that is as it should be; without a file, one that is not stored."""
    count = 1
    for size in shape:
        count *= size
    if file is None:
        return TensorRow(name, None, None, None, None, 0, shape, "missing")
    return TensorRow(name, file, "F32", shape, count, count, shape, "equal")
