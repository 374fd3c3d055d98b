"""The kinds of findings about files: weights, indexes, configs, components."""

from collections.abc import Callable, Mapping
from typing import Any, ClassVar, Self

from msgspec.structs import replace

from auditor.findings.evidence import FindingKind, NoParameters, OfFile, Severity


class OfFiles(NoParameters, FindingKind, frozen=True, kw_only=True):
    """A finding about complete files and no tensor in particular, which explains no parameters."""

    files: tuple[str, ...]

    @property
    def names(self) -> tuple[str, ...]:
        return self.files

    def only(self, matches: Callable[[str], bool]) -> Self:
        return replace(self, files=tuple(filter(matches, self.files)))


class OtherWeights(OfFiles, frozen=True):
    """A weight file is not part of what was audited: a variant, another framework, another folder.

    To do: Nothing; audit it by its own path or with `--variant` if you load it.
    """

    kind: ClassVar = "other-weights"
    severity: ClassVar = Severity.INFO


class BadHeader(OfFile, frozen=True):
    """The header of a weight file cannot be read, breaks the format, or is refused by its loader.

    To do: Upload the file again; if it is a Git LFS pointer, push the file that it stands for. Save
    a torch file again, with tensors, numbers and strings alone, if torch.load refuses its values.
    """

    kind: ClassVar = "bad-header"
    severity: ClassVar = Severity.ERROR


class BadIndex(OfFile, frozen=True):
    """The index of the shards cannot be read, or contradicts the files.

    To do: Upload the shards that it names, or save the model again, with a new index.
    """

    kind: ClassVar = "bad-index"
    severity: ClassVar = Severity.ERROR


class BadDigest(OfFile, frozen=True):
    """The bytes of a file on this machine are not those that the repository lists for it.

    All bytes of the file were read, with `--verify`. No header shows that a download was
    interrupted and filled up with zeros, or that a bit flipped.

    To do: Delete the file and download it again; if it should differ, do not verify it.
    """

    kind: ClassVar = "bad-digest"
    severity: ClassVar = Severity.ERROR


class BadSize(OfFile, frozen=True):
    """A file is shorter or longer than its header declares.

    To do: Upload the file again, and compare its size with that of the original.
    """

    kind: ClassVar = "bad-size"
    severity: ClassVar = Severity.ERROR


class WrongTotal(OfFile, frozen=True):
    """The index declares another number of parameters than the files have; no loader reads it.

    To do: Correct `total_parameters` in the metadata of the index, or remove it.
    """

    kind: ClassVar = "wrong-total"
    severity: ClassVar = Severity.WARNING


class BadConfig(OfFile, frozen=True):
    """A config cannot be read, no model can be built from it, or loading it raises an error.

    To do: Correct the named file until `AutoConfig.from_pretrained` or
    `GenerationConfig.from_pretrained` accepts it.
    """

    kind: ClassVar = "bad-config"
    severity: ClassVar = Severity.ERROR


class Unsafe(OfFile, frozen=True, kw_only=True):
    """Loading the file may run code: it imports unknown names, or cannot be read to its end.

    No code of the file was run.

    To do: Do not load the file; get the weights as safetensors, or publish them in that format.
    """

    imports: tuple[str, ...] = ()  # a line for each name: "posix.system('id') at byte 2"

    kind: ClassVar = "unsafe"
    severity: ClassVar = Severity.ERROR

    @property
    def evidence(self) -> Mapping[str, Any]:
        return {"file": self.file, "imports": self.imports}


class CopyDiffers(OfFile, frozen=True):
    """A copy of the weights in another format differs from them, or cannot be compared.

    To do: Delete the copy, or convert it again: which weights a user gets depends on what loads
    them.
    """

    kind: ClassVar = "copy-differs"
    severity: ClassVar = Severity.WARNING


class AdapterBeside(OfFile, frozen=True):
    """An adapter is in the folder of a complete model, and transformers attaches it on loading.

    To do: If it is merged into the weights already, delete or move `adapter_config.json` and
    `adapter_model.safetensors`: it would be applied a second time. If it is not, say so in the
    model card, or publish it in a repository of its own.
    """

    kind: ClassVar = "adapter-beside"
    severity: ClassVar = Severity.WARNING


class MissingComponent(NoParameters, FindingKind, frozen=True, kw_only=True):
    """A component that the repository declares is absent, or has no weights.

    To do: Upload its folder or its weights, or remove it from the file that declares it.
    """

    declared_in: str  # a file name
    folders: tuple[str, ...]

    kind: ClassVar = "missing-component"
    severity: ClassVar = Severity.ERROR

    @property
    def names(self) -> tuple[str, ...]:
        return self.folders

    @property
    def evidence(self) -> Mapping[str, Any]:
        return {"file": self.declared_in}

    def only(self, matches: Callable[[str], bool]) -> Self:
        return replace(self, folders=tuple(filter(matches, self.folders)))
