"""The kinds of findings that only numbers show, in an audit with `--values`."""

from collections.abc import Mapping
from typing import Any, ClassVar

from auditor.findings.evidence import OfStored, Severity
from auditor.findings.of_files import OfFiles
from auditor.findings.of_tensors import Duplicate


class EqualsBase(OfFiles, frozen=True):
    """All weight files are, byte for byte, those of the model that this one is made from.

    The sha256 of their bytes are the same, which cannot happen by chance. No weight was read where
    listings say them. That is so of a copy that was published again on purpose, too.

    To do: Upload what was trained or merged, if there is anything: this is the base itself.
    """

    kind: ClassVar = "equals-base"
    severity: ClassVar = Severity.WARNING


class OfValues(OfStored, frozen=True, kw_only=True):
    """A finding about the numbers in tensors; it explains nothing of the difference in counts."""

    @property
    def explains(self) -> int:
        return 0


class NotFinite(OfValues, frozen=True, kw_only=True):
    """Some numbers of a tensor are NaN or infinite.

    Each such bit pattern is counted; of what was read no other pattern can be taken for one. Inf in
    a stored buffer is left alone: attention masks are made of it.

    To do: Do not use the model, whose output will be NaN; save it again from a checkpoint before
    the training diverged, or in a dtype with the range that its numbers need.
    """

    counts: tuple[tuple[int, int], ...]  # (NaN, Inf) of each tensor

    aligned: ClassVar = ("counts",)

    kind: ClassVar = "not-finite"
    severity: ClassVar = Severity.ERROR

    @property
    def evidence(self) -> Mapping[str, Any]:
        nan, inf = ([pair[at] for pair in self.counts] for at in (0, 1))
        return {"nan": sum(nan), "inf": sum(inf)}


class AllZero(OfValues, frozen=True):
    """A whole matrix is zero where no initializer leaves zeros, or all scales of a packed one are.

    Every number was read; of a sample, as the reason says, 1,024 at the least, and of a vocabulary
    not only its last rows. Wrong where a class starts such a matrix at zero and was never trained:
    the gates and box heads that transformers starts so are left alone, unless another layer's is
    not zero. A sample is wrong of a matrix that is padded with whole rows of zeros at its end.

    To do: Save the model again from where it was trained: a shard that was gathered too early, or a
    file that was written in part, leaves such zeros.
    """

    kind: ClassVar = "all-zero"
    severity: ClassVar = Severity.WARNING


class NoOpAdapter(OfValues, frozen=True):
    """An adapter adds nothing to its base: each of its modules is as it is before training.

    One factor of each product is zero (lora_B, hada_w2_b, ...), or each IA3 vector is 1. A trained
    factor is exactly zero in every number only if it never got a gradient. Of a sample, as the
    reason says, each module that was seen is so, three at the least: wrong where only others were
    trained.

    To do: Save the adapter again after its training; check that its parameters were trained at all.
    """

    kind: ClassVar = "no-op-adapter"
    severity: ClassVar = Severity.ERROR


class TiedCopyDiffers(OfValues, frozen=True, kw_only=True):
    """A tensor that the config ties to another one is stored with other values than that one.

    Both were compared at the same places; one byte that differs is enough, so this cannot be wrong,
    of a sample either.
    Which of the two a program uses depends on the program.

    To do: Set `tie_word_embeddings` to false, which keeps both. If they should be tied, find out
    which of the two was trained last, and save the model with it.
    """

    of: tuple[str, ...]  # for each tensor, the one that it is tied to

    aligned: ClassVar = ("of",)

    kind: ClassVar = "tied-copy-differs"
    severity: ClassVar = Severity.ERROR

    @property
    def evidence(self) -> Mapping[str, Any]:
        return {"of": self.of}


class EqualDuplicate(Duplicate, frozen=True, kw_only=True):
    """A parameter is stored twice, with the same bytes, all of which were compared.

    To do: Write the files again, each tensor once: either copy may go, and nothing is lost.
    """

    kind: ClassVar = "duplicate"
    severity: ClassVar = Severity.INFO


class DifferingDuplicate(Duplicate, frozen=True, kw_only=True):
    """A tensor is stored in two files with different bytes, and the file list decides which loads.

    To do: Find out which file belongs to this save, and write the files again with its tensors.
    """

    kind: ClassVar = "duplicate"
    severity: ClassVar = Severity.ERROR


class HeadEqualsEmbedding(OfValues, frozen=True, kw_only=True):
    """The config does not tie the output head to the embedding, and both have the same bytes.

    To do: Set `tie_word_embeddings` to true and save the model again, which stores them once, if
    the head was tied in training. Otherwise nothing: loading uses both.
    """

    of: tuple[str, ...]  # for each head, the embedding

    aligned: ClassVar = ("of",)

    kind: ClassVar = "head-equals-embedding"
    severity: ClassVar = Severity.INFO

    @property
    def evidence(self) -> Mapping[str, Any]:
        return {"of": self.of}


class FreshHead(OfValues, frozen=True):
    """A head is as its initializer left it, on a body that was trained.

    Its biases are exactly 0, and the mean and the deviation of its n weights are within four
    standard errors (r / sqrt(2 n) for the deviation) of a normal distribution around 0 with r =
    initializer_range; the norms of the body are not at their 1 and 0 any more. A bias that was
    trained for one step is not 0 in any number, so this is wrong about once in 10,000 heads that
    have no bias, and then only where the body's own matrices are far off r.

    To do: Fine-tune the head before you use what it computes, or save the model with the head that
    was trained.
    """

    kind: ClassVar = "fresh-head"
    severity: ClassVar = Severity.WARNING


class UntrainedRows(OfValues, frozen=True, kw_only=True):
    """Rows of the embedding that belong to tokens of the tokenizer are zero, or all alike.

    The padding token's row is zero in sound models and left alone, as are rows without a token. Two
    trained rows of D numbers are never the same in each bit.

    To do: Train the tokens before you use them, or take them out of the tokenizer.
    """

    rows: tuple[int, ...]  # token ids, ascending

    kind: ClassVar = "untrained-rows"
    severity: ClassVar = Severity.WARNING

    @property
    def evidence(self) -> Mapping[str, Any]:
        return {"rows": self.rows}


class PaddedDtype(OfValues, frozen=True):
    """Numbers are stored in float32 whose lower 16 bits are all zero: bfloat16 in twice the space.

    Said from 1,024 numbers of many values on; by chance it would happen once in 2**16384.

    To do: Save the model in bfloat16: nothing is lost, and the files are half as large.
    """

    kind: ClassVar = "padded-dtype"
    severity: ClassVar = Severity.WARNING


class RepeatedLayers(OfValues, frozen=True, kw_only=True):
    """Layers are copies of each other, byte for byte.

    All bytes of all their matrices were compared. So models begin that were made deeper by copying.

    To do: Nothing, if the model was made so; else look for the layers that should be there.
    """

    layers: tuple[tuple[str, ...], ...]  # groups of identical layers

    kind: ClassVar = "repeated-layers"
    severity: ClassVar = Severity.INFO

    @property
    def evidence(self) -> Mapping[str, Any]:
        return {"layers": self.layers}


class AddedBiasZero(OfStored, frozen=True):
    """A bias is stored that the architecture lacks, and each of its numbers is zero.

    To do: Nothing: adding it changes nothing.
    """

    kind: ClassVar = "added-bias-zero"
    severity: ClassVar = Severity.INFO


class AddedBiasNotZero(OfStored, frozen=True):
    """A bias that the architecture lacks is stored and not zero: without it the output differs.

    To do: Use the class that the model was trained with, or turn the bias on in the config if it
    has a key for it: loading leaves it out.
    """

    kind: ClassVar = "added-bias-zero"
    severity: ClassVar = Severity.ERROR
