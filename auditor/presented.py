"""Methods that show a value in Python: as JSON, as HTML in a notebook, as pandas frames.

Records of outcomes do not depend on formats. So `auditor/__init__.py`, which may import all
modules, sets `function_of`, which imports `auditor.presentation` at the first call of a method.
"""

# As in `typing`, which `auditor/__init__.py` must not import because it takes time.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    import pandas as pd


def _unset(method: str) -> "Callable[..., Any]":
    raise LookupError(method)


function_of: "Callable[[str], Callable[..., Any]]" = _unset  # the function behind a method


class Presented:
    """A value that can be shown as the JSON object that a command prints."""

    __slots__ = ()

    def to_dict(self) -> "dict[str, Any]":
        """Return the object that the command prints with `--format json`."""
        document: dict[str, Any] = function_of("to_dict")(self)
        return document


class PresentedOutcome(Presented):
    """The methods of an audit's outcome; frames raise ImportError without the `frames` extra."""

    __slots__ = ()

    def to_json(self) -> str:
        """Return the line that `audit --format json` prints, without its version, date and fix."""
        return str(function_of("to_json")(self))

    def _repr_html_(self) -> str:
        """Return HTML for a notebook: the verdict, the causes, a drawing of the modules."""
        return str(function_of("html")(self))

    def findings_frame(self) -> "pd.DataFrame":
        """Return a row for each finding, with the columns of `findings.csv`."""
        return self._frame("findings_frame")

    def diagnosis_frame(self) -> "pd.DataFrame":
        """Return a row for each cause, with the columns of `diagnosis.csv`."""
        return self._frame("diagnosis_frame")

    def modules_frame(self) -> "pd.DataFrame":
        """Return a row for each module prefix, with the columns of `modules.csv`.

        Counts are nullable Int64, `share` is a fraction of 1, `prefix` "" is the whole model.
        """
        return self._frame("modules_frame")

    def tensors_frame(self) -> "pd.DataFrame":
        """Return a row for each tensor, stored or expected, in the order of the model.

        Columns: component, name, file, dtype, shape, elements, parameters, expected_shape, status,
        expected_name; with `values=True` also those of `values_frame`. The tensors of all models
        of a repository are included.
        """
        return self._frame("tensors_frame")

    def values_frame(self) -> "pd.DataFrame":
        """Return a row for each tensor whose numbers were read, with their statistics.

        It is empty without `values=True`; some columns are filled only with `statistics=True`.
        """
        return self._frame("values_frame")

    def _frame(self, method: str) -> "pd.DataFrame":
        frame: pd.DataFrame = function_of(method)(self)
        return frame
