"""The kinds of findings about tensors."""

from collections.abc import Callable, Mapping
from typing import Any, ClassVar, Self

from msgspec import Struct
from msgspec.structs import replace

from auditor.analytic import ExpectedTensor, Role
from auditor.findings.evidence import (
    FindingKind,
    OfExpected,
    OfPairs,
    OfStored,
    Severity,
    Uncounted,
    learned_in,
)


class Missing(OfExpected, frozen=True):
    """The declared class needs the tensor, and no file stores it.

    To do: Upload the weights again, or declare in `architectures` the class that was saved: loading
    would start the tensor from random values.
    """

    kind: ClassVar = "missing"
    severity: ClassVar = Severity.ERROR


class NewlyInitialized(OfExpected, frozen=True):
    """The target class has the tensor and the checkpoint does not: loading initializes it.

    The declared class, or the repository's own loader, does not need the tensor.

    To do: Fine-tune the model before you use what the tensor computes: its values are random. A
    counter of batches computes nothing.
    """

    kind: ClassVar = "newly-initialized"
    severity: ClassVar = Severity.INFO

    @property
    def evidence(self) -> Mapping[str, Any]:
        return {"learned": sum(tensor.role.learned for tensor in self.tensors)}


class Unexpected(OfStored, frozen=True, kw_only=True):
    """A tensor is stored that no class of the model's family uses.

    If there are more than MOST_NAMED such tensors, only the first ones are named.

    To do: Remove it before you publish, or correct `architectures` and the config if the model
    needs it: loading leaves it out.
    """

    more: int = 0  # number of tensors that are not named
    more_parameters: int = 0  # number of parameters of those tensors
    known_to: str = ""  # a class of the family that expects these names with other shapes

    kind: ClassVar = "unexpected"
    severity: ClassVar = Severity.WARNING

    @property
    def count(self) -> int:
        return len(self.tensors) + self.more

    @property
    def parameters(self) -> int:
        return learned_in(self.tensors) + self.more_parameters

    @property
    def explains(self) -> int:
        return self.parameters


class Unused(OfStored, frozen=True, kw_only=True):
    """The target class does not use the tensor, and another class of its family does.

    To do: Nothing; load the class that the finding names if you need the tensor.
    """

    used_by: tuple[str, ...]
    copies: bool = False  # whether a sibling ties it: then its parameters are counted elsewhere

    kind: ClassVar = "unused"
    severity: ClassVar = Severity.INFO

    @property
    def evidence(self) -> Mapping[str, Any]:
        return {"used_by": self.used_by}

    @property
    def parameters(self) -> int:
        return 0 if self.copies else learned_in(self.tensors)

    @property
    def explains(self) -> int:
        return self.parameters


class UnusedHead(Unused, frozen=True):
    """The declared class does not use a stored head, and a class with that head uses all tensors.

    transformers' auto classes select a class by `model_type` and the task; vLLM and llama.cpp's
    converter select it by `architectures`, and leave the head out. The head of a pretraining task
    is `unused` instead.

    To do: Declare in `architectures` the class that was saved, or save the declared class without
    the head.
    """

    kind: ClassVar = "unused-head"
    severity: ClassVar = Severity.WARNING


class StoredBuffer(Uncounted, frozen=True):
    """A tensor is stored that is not learned: position_ids, inv_freq, an attention mask.

    To do: Nothing; it is not counted as parameters.
    """

    kind: ClassVar = "buffer"
    severity: ClassVar = Severity.INFO


class QuantizationData(Uncounted, frozen=True):
    """A quantized weight needs the tensor to be unpacked: scales, zero points, g_idx, absmax.

    A large model has many such tensors: they are listed in the order in which the layout found
    them.

    To do: Nothing; it is not counted as parameters.
    """

    kind: ClassVar = "quantization-data"
    severity: ClassVar = Severity.INFO


class BadQuantization(Uncounted, frozen=True):
    """Packed tensors contradict their layout, the quantization config or the architecture.

    To do: Correct the bits, the group size or the list of modules in `quantization_config`, or
    quantize the model again.
    """

    kind: ClassVar = "bad-quantization"
    severity: ClassVar = Severity.ERROR


class Duplicate(Uncounted, frozen=True, kw_only=True):
    """A parameter is stored twice: under two names, or in two shards.

    To do: Save the model again with `save_pretrained`, which stores it once; until then, check that
    both copies have the same values.
    """

    of: tuple[str, ...]  # for each tensor, the name of the copy that is counted

    aligned: ClassVar = ("of",)

    kind: ClassVar = "duplicate"
    severity: ClassVar = Severity.WARNING

    @property
    def evidence(self) -> Mapping[str, Any]:
        return {"of": self.of}


class WrongDtype(Uncounted, frozen=True, kw_only=True):
    """A tensor is stored in another dtype than the config declares.

    To do: Set `dtype` in the config to what is stored, or save the weights in the declared dtype.
    """

    declared: str  # a dtype's name in safetensors

    kind: ClassVar = "wrong-dtype"
    severity: ClassVar = Severity.WARNING

    @property
    def evidence(self) -> Mapping[str, Any]:
        return {"declared": self.declared}


class Mismatched(OfPairs, frozen=True):
    """A tensor is stored under the right name, with another shape than expected.

    To do: Save config and weights again together; or correct the size in the config (`vocab_size`
    after new tokens, for example).
    """

    kind: ClassVar = "mismatched"
    severity: ClassVar = Severity.ERROR

    @property
    def explains(self) -> int:
        learned = (pair.stored for pair in self.pairs if pair.expected.role.learned)
        return sum(tensor.elements or 0 for tensor in learned) - self.parameters


class Renamed(OfPairs, frozen=True):
    """A tensor is stored under an older or a prefixed name, which loading translates.

    To do: Nothing for transformers; other software may need the names that `save_pretrained` writes
    today.
    """

    kind: ClassVar = "renamed"
    severity: ClassVar = Severity.INFO


class TiedWeight(OfExpected, frozen=True, kw_only=True):
    """A tensor is not stored, and need not be: it shares the values of another one.

    To do: Nothing; its parameters are counted once.
    """

    to: tuple[str, ...]  # for each tensor, the stored tensor with its values

    aligned: ClassVar = ("to",)

    kind: ClassVar = "tied"
    severity: ClassVar = Severity.INFO

    @property
    def evidence(self) -> Mapping[str, Any]:
        return {"tied_to": self.to}

    @property
    def parameters(self) -> int:
        return 0  # counted once, as part of the stored tensor

    @property
    def explains(self) -> int:
        return 0


class DisputedTensor(Struct, frozen=True, kw_only=True):
    """A tensor as the closed form and as the oracle list it; None where a list lacks it."""

    name: str
    closed_form: ExpectedTensor | None
    oracle: ExpectedTensor | None

    @property
    def evidence(self) -> Mapping[str, Any]:
        return {
            "name": self.name,
            "closed_form": _disputed(self.closed_form),
            "oracle": _disputed(self.oracle),
        }


def _disputed(tensor: ExpectedTensor | None) -> Mapping[str, Any] | None:
    return tensor and {"shape": tensor.shape, "role": tensor.role, "tied_to": tensor.tied_to}


class FormulaDisputed(FindingKind, frozen=True, kw_only=True):
    """Our closed form and transformers do not expect the same tensors: one of the two is wrong.

    To do: Report it to this project with the model's name; the checkpoint itself may be sound.
    """

    target: str  # the class; it is the name if only the total is in dispute
    disputes: tuple[DisputedTensor, ...]

    kind: ClassVar = "formula-disputed"
    severity: ClassVar = Severity.WARNING

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(dispute.name for dispute in self.disputes) or (self.target,)

    @property
    def parameters(self) -> int:
        return sum(_larger(dispute) for dispute in self.disputes)

    @property
    def explains(self) -> int:
        return 0  # the difference is that of stored tensors from the closed form

    @property
    def evidence(self) -> Mapping[str, Any]:
        return {"disputes": [dispute.evidence for dispute in self.disputes]}

    def only(self, matches: Callable[[str], bool]) -> Self:
        return replace(self, disputes=tuple(one for one in self.disputes if matches(one.name)))


def _larger(dispute: DisputedTensor) -> int:
    """Return the larger of the tensor's two numbers of parameters."""
    sides = (side for side in (dispute.closed_form, dispute.oracle) if side is not None)
    return max((side.elements for side in sides if side.role is Role.PARAMETER), default=0)
