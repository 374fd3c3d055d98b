"""The kinds of findings about companion files and about the config's keys.

These findings concern no tensor and explain no parameters; each names files and keys.
"""

from collections.abc import Callable, Mapping
from typing import Any, ClassVar, Self

from msgspec.structs import replace

from auditor.findings.evidence import FindingKind, NoParameters, Severity


def _name_of_key(statement: tuple[str, str, str]) -> str:
    """Return the key of a statement, or its file's name if there is no key."""
    file, key, _ = statement
    return key or file


class OfKeys(NoParameters, FindingKind, frozen=True, kw_only=True):
    """A finding about keys of files: (file, key, value) for each, "" for a missing key or value."""

    says: tuple[tuple[str, str, str], ...]  # the value is JSON, shortened
    fix: str  # what to change in this repository

    @property
    def file(self) -> str:
        return self.says[0][0]

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(sorted(set(map(_name_of_key, self.says))))

    @property
    def evidence(self) -> Mapping[str, Any]:
        says = [{"file": file, "key": key, "value": value} for file, key, value in self.says]
        return {"file": self.file, "says": says, "fix": self.fix}

    def only(self, matches: Callable[[str], bool]) -> Self:
        return replace(self, says=tuple(one for one in self.says if matches(_name_of_key(one))))


class OfIds(OfKeys, frozen=True, kw_only=True):
    """A finding about ids of tokens and the rows of the embedding for them."""

    ids: tuple[int, ...]  # sorted token ids
    rows: int
    rows_of: str  # the tensor with these rows, or the config's key for their number

    @property
    def evidence(self) -> Mapping[str, Any]:
        ids = {"ids": self.ids, "rows": self.rows, "rows_of": self.rows_of}
        return {**super().evidence, **ids}


class TokenBeyondEmbedding(OfIds, frozen=True):
    """The tokenizer has an id beyond the rows of the embedding; more rows than ids is normal.

    To do: Call `model.resize_token_embeddings(len(tokenizer))` and save both, or upload the
    tokenizer that the model was trained with.
    """

    kind: ClassVar = "token-beyond-embedding"
    severity: ClassVar = Severity.ERROR


class SpecialIdBeyondVocabulary(OfIds, frozen=True):
    """A special token of the config or the generation config has an id beyond the vocabulary.

    To do: Correct the id: look the token up in the tokenizer.
    """

    kind: ClassVar = "special-id-beyond-vocabulary"
    severity: ClassVar = Severity.ERROR


class EosDisagrees(OfKeys, frozen=True, kw_only=True):
    """Tokenizer, config and generation config name different end tokens, and no file names all.

    To do: Name the tokens at which the model was trained to stop in `generation_config.json`; a
    list is normal.
    """

    ids: tuple[int, ...] = ()  # of all end tokens; empty if an end token is not known to be special

    kind: ClassVar = "eos-disagrees"
    severity: ClassVar = Severity.WARNING

    @property
    def evidence(self) -> Mapping[str, Any]:
        return {**super().evidence, "ids": self.ids}


class ChatTurnsWrong(OfKeys, frozen=True):
    """Generation begins or ends in the wrong place of a chat, by its template and end tokens.

    The end token is an ordinary word, the template ends turns with the token of another format, or
    it adds no generation prompt, although each turn has a header.

    To do: Name the token at which the model was trained to stop in `tokenizer_config.json` and
    `generation_config.json`, or use the chat template that the model was trained with.
    """

    kind: ClassVar = "chat-turns-wrong"
    severity: ClassVar = Severity.WARNING


class TokenizerNote(OfKeys, frozen=True):
    """A setting in the tokenizer's files that suits some programs that read them, but not all.

    To do: Check that it is intended: a truncation or padding saved in `tokenizer.json`, or a chat
    template whose turns end with a token at which generation does not stop.
    """

    kind: ClassVar = "tokenizer-note"
    severity: ClassVar = Severity.INFO


class ChatTemplateBroken(OfKeys, frozen=True):
    """The chat template does not parse, or two copies of it differ. It was never rendered.

    To do: Correct the template, or delete the copy that is not meant; check it with
    `tokenizer.apply_chat_template`.
    """

    kind: ClassVar = "chat-template-broken"
    severity: ClassVar = Severity.ERROR


class ConfigOverwritten(OfKeys, frozen=True):
    """The file has the settings of another module of sentence-transformers; loading it raises.

    An upload without folders writes the modules' files of the same name over each other.

    To do: Upload each module's `config.json` again, in the folder that `modules.json` names.
    """

    kind: ClassVar = "config-overwritten"
    severity: ClassVar = Severity.ERROR


class ConfigContradiction(OfKeys, frozen=True):
    """The config declares one fact twice, with different values; the finding names the value used.

    To do: Remove the key that is not meant; the other one stays.
    """

    kind: ClassVar = "config-contradiction"
    severity: ClassVar = Severity.WARNING


class GenerationConfigInvalid(OfKeys, frozen=True):
    """The generation config is one that transformers refuses to save.

    To do: Remove the settings that the finding names, or set what they need (`do_sample`).
    """

    kind: ClassVar = "generation-config-invalid"
    severity: ClassVar = Severity.WARNING


class UnknownConfigKey(OfKeys, frozen=True):
    """No class of the model type reads the key, which is one typing error away from a known key.

    To do: Correct the spelling; until then the default is used.
    """

    kind: ClassVar = "unknown-config-key"
    severity: ClassVar = Severity.WARNING


class CodeNotThere(OfKeys, frozen=True):
    """A module of code that auto_map names is not in the repository.

    To do: Upload the module, or name the repository that has it: `org/name--module.Class`.
    """

    kind: ClassVar = "code-not-there"
    severity: ClassVar = Severity.ERROR


class ProcessorMissing(OfKeys, frozen=True):
    """A model of images or audio comes without the processor that prepares them.

    To do: Save the processor in the model's folder: `processor.save_pretrained`.
    """

    kind: ClassVar = "processor-missing"
    severity: ClassVar = Severity.WARNING


class ProcessorUnknown(OfKeys, frozen=True):
    """A processor's config names a class that transformers does not have; loading it raises.

    `AutoProcessor` returns the tokenizer alone if it does not find the class of the processor.

    To do: Name the class that the finding names; the library renamed it, or never had it.
    """

    kind: ClassVar = "processor-unknown"
    severity: ClassVar = Severity.ERROR


# --- published numbers of parameters -----------------------------------------------------------


class OfCount(NoParameters, FindingKind, frozen=True, kw_only=True):
    """A finding about a published number: its source, its text, and the true number."""

    where: str  # a key of the Hub's answer, or the repository's name
    text: str
    claim: int
    actual: int

    @property
    def names(self) -> tuple[str, ...]:
        return (self.where,)

    @property
    def evidence(self) -> Mapping[str, Any]:
        return {"text": self.text, "claim": self.claim, "actual": self.actual}

    def only(self, _matches: Callable[[str], bool]) -> Self:
        return self  # a published count is not split by names


class HubCount(OfCount, frozen=True):
    """The Hub states a number of parameters that these files do not have; programs rely on it.

    The number is neither that of the parameters nor that of the stored elements: it comes from
    another upload, or was edited.

    To do: Upload the weights again, which makes the Hub count anew.
    """

    kind: ClassVar = "hub-count"
    severity: ClassVar = Severity.WARNING


class ClaimedSize(OfCount, frozen=True):
    """A published size is not the model's: in its name, its card, or the Hub's packed count.

    The Hub counts stored elements: in weights packed by GPTQ or AWQ, one element contains eight
    parameters.

    To do: Correct the name or the card (`audit claim` prints what the number counts); for packed
    weights, state the true number in the card.
    """

    kind: ClassVar = "claimed-size"
    severity: ClassVar = Severity.INFO
