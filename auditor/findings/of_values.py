"""The kinds of findings that only numbers show, in an audit with `--values`."""

from collections.abc import Mapping
from typing import Any, ClassVar

from auditor.findings.evidence import OfStored, Severity
from auditor.findings.of_files import OfFiles
from auditor.findings.of_tensors import Duplicate


class EqualsBase(OfFiles, frozen=True):
    """All weight files are, byte for byte, those of the model that this one is made from.

    Their sha256 are equal, which cannot happen by chance. If listings state the sha256, no weight
    is read. A copy that was published again on purpose has this finding too.

    To do: Upload what was trained or merged, if there is anything: this is the base itself.
    """

    kind: ClassVar = "equals-base"
    severity: ClassVar = Severity.WARNING


class OfValues(OfStored, frozen=True, kw_only=True):
    """A finding about the numbers in tensors; it explains no difference in counts."""

    @property
    def explains(self) -> int:
        return 0


class NotFinite(OfValues, frozen=True, kw_only=True):
    """Some numbers of a tensor are NaN or infinite.

    Each NaN or Inf among the numbers that were read is counted; no other bit pattern can be
    mistaken for one. Inf in a stored buffer is ignored: attention masks consist of it.

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
    """A matrix or norm is zero where no initializer leaves zeros, or all scales of a matrix are.

    Every number was read, or a sample, which the reason then states: at least 1,024 numbers, and in
    a vocabulary not only its last rows. The finding is wrong if the class initializes such a matrix
    to zero and it was never trained. Gates and box heads that transformers initializes to zero are
    ignored, unless the same matrix of another layer is not zero; norms of classes that add 1 to
    them, unless a norm near them was trained. The finding of a sample is also wrong if the matrix
    is padded with complete rows of zeros at its end.

    To do: Save the model again from where it was trained: a shard that was gathered too early, or a
    file that was written in part, leaves such zeros.
    """

    kind: ClassVar = "all-zero"
    severity: ClassVar = Severity.WARNING


class NoOpAdapter(OfValues, frozen=True):
    """An adapter adds nothing to its base: all of its modules are as before training.

    One factor of each product is zero (lora_B, hada_w2_b, ...), or each IA3 vector is 1. A trained
    factor is exactly zero in every number only if it never got a gradient. If only a sample was
    read, which the reason then states, every sampled module (at least three) is untrained; the
    finding is wrong if only unsampled modules were trained.

    To do: Save the adapter again after its training; check that its parameters were trained at all.
    """

    kind: ClassVar = "no-op-adapter"
    severity: ClassVar = Severity.ERROR


class TiedCopyDiffers(OfValues, frozen=True, kw_only=True):
    """A tensor that the config ties to another one is stored with other values than that one.

    Both were compared at the same places, and one differing byte is enough, so the finding is right
    even if only a sample was read. Which of the two a program uses depends on the program.

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
    """A head still has its initial values, although the body was trained.

    The biases of the head are exactly 0. The mean and the standard deviation of its n weights are
    within four standard errors (r / sqrt(2 n) for the deviation) of a normal distribution around 0
    with r = initializer_range. The norms of the body no longer have their initial values 1 and 0.
    After one step of training, no number of a bias is 0; so the finding is wrong for about one in
    10,000 heads without a bias, and then only if the deviation of the body's own matrices is far
    from r.

    To do: Fine-tune the head before you use what it computes, or save the model with the head that
    was trained.
    """

    kind: ClassVar = "fresh-head"
    severity: ClassVar = Severity.WARNING


class UntrainedRows(OfValues, frozen=True, kw_only=True):
    """Rows of the embedding that belong to tokens of the tokenizer are zero, or all identical.

    The padding token's row is zero in sound models, so it is ignored, as are rows without a token.
    Two trained rows of D numbers are never identical in each bit.

    To do: Train the tokens before you use them, or remove them from the tokenizer.
    """

    rows: tuple[int, ...]  # token ids, ascending

    kind: ClassVar = "untrained-rows"
    severity: ClassVar = Severity.WARNING

    @property
    def evidence(self) -> Mapping[str, Any]:
        return {"rows": self.rows}


class PaddedDtype(OfValues, frozen=True):
    """Numbers are stored in float32 whose lower 16 bits are all zero: bfloat16 in twice the space.

    A tensor counts if all of its numbers are so, or a quarter of them. The finding needs at least
    1,024 such numbers of many different values, and a tenth of all bytes.

    To do: Save the model in bfloat16: nothing is lost, and the files are half as large.
    """

    kind: ClassVar = "padded-dtype"
    severity: ClassVar = Severity.WARNING


class RepeatedLayers(OfValues, frozen=True, kw_only=True):
    """Layers are copies of each other, byte for byte.

    All bytes of all their matrices were compared. A model that was made deeper by copying layers
    starts its training like this.

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
    """A bias that the architecture lacks is stored and is not zero: the output differs without it.

    To do: Loading leaves the bias out. Use the class that the model was trained with, or turn the
    bias on in the config if there is a key for it.
    """

    kind: ClassVar = "added-bias-zero"
    severity: ClassVar = Severity.ERROR


class PartZero(OfValues, frozen=True):
    """Blocks of zero rows or columns fill a quarter of a matrix, or a quarter of scales is zero.

    Each number of the matrix was read, or a sample of the scales. Rows and columns that weight
    decay drove to zero are scattered; here they are neighbours. Rows at the end of an embedding or
    a head do not count, because they may be padding.

    To do: Save the model again from where it was trained: a part that was not gathered, or a file
    that was written in part, leaves such zeros.
    """

    kind: ClassVar = "part-zero"
    severity: ClassVar = Severity.WARNING


class ConstantMatrix(OfValues, frozen=True):
    """A matrix consists of one number, or of one row, where training leaves numbers that differ.

    Each number was compared, or a sample of at least 256. Tensors that the class may initialize
    so (biases, positions, norms, gates) are ignored.

    To do: Save the model again from where it was trained; a matrix that was filled in for a missing
    one looks like this.
    """

    kind: ClassVar = "constant-matrix"
    severity: ClassVar = Severity.WARNING


class Outlier(OfValues, frozen=True):
    """A number is 32,768 times larger than nine tenths of its tensor, and above 10,000.

    Trained matrices stay below a factor of 560. Buffers, masks and scales are ignored.

    To do: Compare the file with its digest (`--verify`) and save it again: a flipped bit of an
    exponent looks like this.
    """

    kind: ClassVar = "outlier"
    severity: ClassVar = Severity.ERROR


class Subnormal(OfValues, frozen=True):
    """A tenth of a matrix or more is subnormal (below 1e-38), beside numbers of ordinary magnitude.

    The numbers of dead channels may be subnormal, too: they fill whole rows or columns, or numbers
    of all magnitudes are beside them. F16 is not judged: small trained numbers are subnormal there.

    To do: Save the model again from where it was trained: bytes of another dtype, or weights that
    decay drove to zero, look like this.
    """

    kind: ClassVar = "subnormal"
    severity: ClassVar = Severity.WARNING


class MislabeledDtype(OfValues, frozen=True):
    """The header says F16 and the bytes are BF16, or the reverse: every number is wrong.

    The magnitudes of a trained matrix spread over 1 to 4 binades (the standard deviation of
    log2 |x|). Bytes of the wrong 16-bit dtype spread over less than 0.5 or more than 7, and over 1
    to 4 if they are read as the other dtype. Vectors are not judged, nor matrices with one sign.

    To do: Write the other dtype into the header, or save the model again.
    """

    kind: ClassVar = "mislabeled-dtype"
    severity: ClassVar = Severity.ERROR


class Untrained(OfValues, frozen=True):
    """A layer, an expert or the complete model has the values that the initializer left.

    The norms of the layer are 1 (or 0, where the class adds 1) and its biases 0. In each matrix the
    numbers are independent draws: mean, kurtosis, and the means and deviations of rows and columns
    are within five standard errors. An expert has no norms: its deviation is that of the
    initializer, and most experts of its layer have another one.

    To do: Train it, or save the model again if it was trained: a layer whose weights were not
    loaded is left like this.
    """

    kind: ClassVar = "untrained"
    severity: ClassVar = Severity.WARNING


class CopiedModules(OfValues, frozen=True, kw_only=True):
    """Some matrices of a layer are copies of those of another layer, byte for byte.

    All bytes of at least two matrices were compared, and most other matrices of the two layers are
    not correlated: a layer that was copied whole and then tuned in part is no fault. The finding
    names both layers, because their bytes do not show which of them is the copy.

    To do: Look for the module that should be there; keep it if the two layers share it on purpose.
    """

    layers: tuple[tuple[str, ...], ...]  # pairs of layers

    kind: ClassVar = "copied-modules"
    severity: ClassVar = Severity.WARNING

    @property
    def evidence(self) -> Mapping[str, Any]:
        return {"layers": self.layers}


class MeanRows(OfValues, frozen=True, kw_only=True):
    """The last rows of the embedding are the mean of the other rows: added, not trained since.

    `resize_token_embeddings` of transformers leaves rows like this (`mean_resizing`, its default):
    the mean, plus noise of 3e-5 standard deviations.

    To do: Nothing, if the tokens will still be trained; otherwise train them before you use them.
    """

    rows: tuple[int, ...]  # token ids, ascending

    kind: ClassVar = "mean-rows"
    severity: ClassVar = Severity.INFO

    @property
    def evidence(self) -> Mapping[str, Any]:
        return {"rows": self.rows}


class IdleModules(OfValues, frozen=True):
    """Three tenths of an adapter's modules or more add nothing, and the others were trained.

    One factor of each product is zero, which it is only before its first gradient. The modules of
    one tower that is not used in training may all be idle: then there is no finding.

    To do: Save the adapter again after its training; check which parameters the optimizer had.
    """

    kind: ClassVar = "idle-modules"
    severity: ClassVar = Severity.WARNING
