"""Parts of outcomes that are made by hand."""

from math import prod

from auditor.analytic import ExpectedTensor, Role
from auditor.reconciler.rows import ModuleRow
from auditor.tensors import Span, StoredTensor

COMMIT = "8f23c25b06e129b6c986331a13d8d025a92cf0ea"
LAYER = "12*D^2 + 13*D"  # parameters of a layer of BERT


def stored(name, *shape, dtype="F32", file="model.safetensors"):
    return StoredTensor(name, dtype, shape, prod(shape), file, Span(0, 4 * prod(shape)))


def expected(name, *shape, role=Role.PARAMETER, tied_to=None):
    return ExpectedTensor(name, shape, prod(shape), role, tied_to)


def row(prefix, tensors, parameters, expects, status, *, of, formula=None):  # noqa: PLR0913 - a row
    """All elements are trainable parameters in F32; `of` is the count of the whole model."""
    return ModuleRow(
        prefix=prefix,
        depth=prefix.count(".") + 1 if prefix else 0,
        tensors=tensors,
        elements=parameters,
        parameters=parameters,
        trainable=parameters,
        bytes=4 * parameters,
        share=parameters / of,
        expected=expects,
        difference=parameters - expects,
        formula=formula,
        status=status,
    )
