"""AuditRequest: the options of one audit."""

from msgspec import Struct

from auditor.findings.ignore import Ignore
from auditor.tensors import Depth


class AuditRequest(Struct, frozen=True, kw_only=True):
    """A checkpoint and the options of its audit, with the names of the command's options."""

    model: str  # a Hub id (with @revision), an address, a folder, a file or a snapshot
    target: str | None = None  # the class to audit for; None: what the checkpoint declares
    source: str = "hub"  # where a Hub id is looked up: auto, hub, cache or bundled
    token: str | None = None  # a Hugging Face access token; None: the stored one
    depth: int | Depth | None = None  # levels of the report's module rows; None: all
    ignore: tuple[Ignore, ...] = ()  # findings that are left out of the verdict
    engines: tuple[str, ...] = ()  # serving engines to ask: vllm, mlx, llama.cpp
    oracle: bool = False  # also compare the closed form with what transformers builds
    kv_cache: bool = False  # let transformers fill the KV cache of a class without a closed form
    # Also compare safetensors with their torch copies on the Hub; in a folder this is always done.
    torch_copies: bool = False
    variant: str | None = None  # the weights that from_pretrained loads with variant="fp16"
    companions: bool = True  # read tokenizer, generation config, chat template and processor
    values: bool = False  # read all numbers of local files, a sample of those on the Hub
    statistics: bool = False  # with values: mean, std and more for each tensor
    values_budget: str | None = None  # the most requests and bytes of a sample, as "8,600kB"
    # A model to compare with: its weight files by sha256, and its numbers if `values` is set.
    base: str | None = None
    verify: bool = False  # compare the sha256 of local files with what their repository lists
    verify_against: str | None = None  # a Hub model or a snapshot whose list is used instead
    # Read the sha256 of local files and the front matter of README.md, for a bill of materials.
    materials: bool = False
    config: str | None = None  # a file, a folder or a model whose config replaces the model's own

    @property
    def reads_values(self) -> bool:
        """Whether an option requires that the checkpoint's numbers are read."""
        return self.values or self.statistics or self.values_budget is not None
