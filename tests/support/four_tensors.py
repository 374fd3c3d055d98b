"""A model of four tensors, and stored tensors of which only the name is known."""

from auditor.analytic import Expectation, ExpectedTensor, ModuleFormula, Role, Written
from auditor.tensors import StoredTensor

FILE = "model.safetensors.index.json"
EMBEDDING, HEAD = "embed.weight", "head.weight"
TENSORS = (
    ExpectedTensor(EMBEDDING, (10, 4), 40),
    ExpectedTensor("norm.weight", (4,), 4),
    ExpectedTensor("attn.mask", (4, 4), 16, Role.LEGACY),
    ExpectedTensor(HEAD, (10, 4), 40, Role.TIED, EMBEDDING),
)
WHOLE = Expectation(
    target="Target",
    model_type="type",
    prefix="",
    by="closed-form",
    listed=Written(tensors=TENSORS, modules={"": ModuleFormula(44, "44")}),
    parameters=44,
    formula="44",
    legend=(),
)


def named(name: str) -> StoredTensor:
    return StoredTensor(name, None, None, None, "a.safetensors", None)
