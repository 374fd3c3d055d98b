"""RepositoryCase: the input of the rules about a repository."""

import json
import re
from collections.abc import Callable, Iterable, Mapping
from functools import cache, cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from msgspec import Struct, field

from auditor.analytic import ExpectedTensor
from auditor.analytic.config_classes import ConfigClass
from auditor.companions.companion_files import (
    ADDED,
    OFFSET_PIECES,
    SPECIAL,
    TOKENIZER,
    TOKENIZER_CONFIG,
    CompanionFile,
    is_vocabulary,
    template_name,
)
from auditor.companions.tokenizer_config import has_decoder
from auditor.errors import CheckpointError
from auditor.observation import Checked
from auditor.tensors import StoredTensor

if TYPE_CHECKING:
    from auditor.companions.vocabulary import Token, Vocabulary

# Names of token embedding modules in transformers' classes.
_MODULES = (
    *("embed_tokens", "word_embeddings", "word_embedding", "wte", "shared", "tok_embeddings"),
    *("embed_in", "token_embedding", "token_embeddings", "tokens_embed", "embeddings"),
    *("embedding", "w"),
)
_EMBEDDING = re.compile(rf"(?:^|\.)(?:{'|'.join(_MODULES)})\.weight$")
# Idefics stores the embeddings of added tokens in a separate tensor.
_ADDITIONAL = ".additional_embedding.weight"
_ENDINGS = (_ADDITIONAL, *(f"{module}.weight" for module in _MODULES))  # a few of 90,000 names

# Objects inside a config whose models use the tokens of the tokenizer.
TEXT_PARTS = ("text_config", "decoder", "llm_config", "language_config")

_DEFAULT_IDS = Path(__file__).parents[2] / "data" / "special_ids.json"

_LONGEST_SHOWN = 60  # characters of a value in a message


class EmbeddingRows(NamedTuple):
    """The number of tokens that the model embeds, and the source of this number."""

    rows: int
    of: str


class RepositoryCase(Struct, frozen=True, kw_only=True, dict=True):
    """One model: its config, the listed files, and the companion files that were read."""

    names: frozenset[str]  # names of all listed files
    is_complete: bool  # whether the listing has all files
    is_local: bool = False  # whether a folder was read that is not a cache
    config_file: str
    config: Mapping[str, Any]
    kind: ConfigClass | None  # the config class of transformers, if known
    is_custom: bool  # whether the repository's own code reads the config
    target: str | None
    stored: tuple[StoredTensor, ...]
    expected: Callable[[], Iterable[ExpectedTensor]]
    companions: Mapping[str, CompanionFile]  # empty if companion files were not read
    shaping: frozenset[str] | None = None  # config keys in the closed form; None without one
    settings: Mapping[str, Any] = field(default_factory=dict)  # settings of sentence-transformers
    unread: dict[str, str] = field(default_factory=dict)  # file name -> why it could not be used
    checked: dict[str, Checked] = field(default_factory=dict)  # answers by line of `audit doctor`

    @cached_property
    def rows(self) -> EmbeddingRows | None:
        """The number of embedded tokens by the headers, else by the config; None if unknown."""
        return self._stored_rows or _longest_embedding(self.expected())

    @cached_property
    def _stored_rows(self) -> EmbeddingRows | None:
        return _longest_embedding(self.stored)

    @property
    def rows_are_stored(self) -> bool:
        return self._stored_rows is not None

    def unusable(self, *names: str) -> Checked | None:
        """Return why one of these companion files was not read or used; None if all were."""
        for name in names:
            file = self.companions.get(name)
            if file is None:
                continue
            vocabulary = self.vocabularies.get(name)
            is_template = template_name(name) is not None
            is_used = vocabulary or (file.content if is_template else self.object(name)) is not None
            why = "" if is_used else self.unread.get(name) or f"not read{file.unread and ': '}"
            if vocabulary and vocabulary.unread:
                why = f"not read: {vocabulary.unread}"
            if why:
                return Checked("unread", f"{name}: {why}{'' if is_used else file.unread}")
        return None

    def absence(self, text: str) -> Checked:
        """Return the answer for files that are not there; a listing may be incomplete."""
        if self.is_complete or self.is_local:
            return Checked("absent", text)
        return Checked("unread", f"{text}, and not all files of the repository are listed")

    @property
    def token_files(self) -> tuple[str, ...]:
        """The files whose tokens loading uses, except vocabularies other than tokenizer.json."""
        older = () if has_decoder(self.object(TOKENIZER_CONFIG) or {}) else (ADDED, SPECIAL)
        return (TOKENIZER, TOKENIZER_CONFIG, *older)

    def object(self, name: str) -> Mapping[str, Any] | None:
        """Return the JSON object in a companion file; None if it is missing or unusable."""
        if name not in self._objects:
            self._objects[name] = self._parsed(name)
        return self._objects[name]

    @cached_property
    def _objects(self) -> dict[str, Mapping[str, Any] | None]:
        return {}

    def _parsed(self, name: str) -> Mapping[str, Any] | None:
        file = self.companions.get(name)
        if file is None or file.content is None:
            return None
        try:
            return file.object
        except CheckpointError as error:
            self.unread[name] = str(error)
            return None

    @cached_property
    def vocabularies(self) -> Mapping[str, "Vocabulary"]:
        """The ids of the tokenizer's tokens, as {file name: Vocabulary}."""
        from auditor.companions.vocabulary import vocabulary_of  # noqa: PLC0415 - where there is one

        vocabulary_by_file: dict[str, Vocabulary] = {}
        for name, file in self.companions.items():
            if file.content is None or not is_vocabulary(name):
                continue
            try:
                vocabulary_by_file[name] = vocabulary_of(file)
            except CheckpointError as error:
                self.unread[name] = str(error)
        return vocabulary_by_file

    @cached_property
    def added(self) -> tuple[tuple[str, "Token"], ...]:
        """Each added token as loading defines it, with the file that contains it."""
        from auditor.companions.tokenizer_config import (  # noqa: PLC0415 - likewise
            loaded_settings,
            loaded_tokens,
        )

        settings = loaded_settings(self.object(TOKENIZER_CONFIG), self.object(SPECIAL))
        return tuple(loaded_tokens(settings, self.vocabularies))

    @cached_property
    def special_ids(self) -> frozenset[int]:
        """The ids of added tokens, and of tokens of the vocabulary that look special."""
        added = (token for _, token in self.added)
        others = (token for one in self.vocabularies.values() for token in one.special)
        return frozenset(token.id for token in (*added, *others))

    def ids_of(self, text: str) -> frozenset[int]:
        """Return the ids of a special token among the added tokens, else in the vocabulary."""
        added = frozenset(token.id for _, token in self.added if token.text == text)
        return added or frozenset(
            token.id
            for name, vocabulary in self.vocabularies.items()
            for token in vocabulary.special
            if token.text == text and name not in OFFSET_PIECES
        )

    def text_part(self) -> tuple[str, Mapping[str, Any]] | None:
        """Return (key, values) of the text config inside the config; None if it has none."""
        for key in TEXT_PARTS:
            part = self.config.get(key)
            if isinstance(part, Mapping):
                return key, part
        return None

    def default(self, key: str, part: str | None = None) -> Any:
        """Return the config class's default for a special id; None if it has no default."""
        values = self.config if part is None else self.config[part]
        model_type = values.get("model_type")
        return _default_ids().get(model_type, {}).get(key) if isinstance(model_type, str) else None


def _longest_embedding(
    tensors: Iterable[StoredTensor] | Iterable[ExpectedTensor],
) -> EmbeddingRows | None:
    """Return the longest token embedding: if there are two, the tokenizer may belong to either."""
    shapes = [(tensor.name, tensor.shape) for tensor in tensors if tensor.name.endswith(_ENDINGS)]
    extra = sum(shape[0] for name, shape in shapes if shape and name.endswith(_ADDITIONAL))
    embeddings = [
        EmbeddingRows(shape[0] + extra, name)
        for name, shape in shapes
        if shape and len(shape) == 2 and _EMBEDDING.search(name)  # noqa: PLR2004
    ]
    return max(embeddings, default=None)


@cache
def _default_ids() -> Mapping[str, Mapping[str, Any]]:
    """Read the default special ids by model type, from tools/rebuild_special_ids.py."""
    by_type: Mapping[str, Mapping[str, Any]] = json.loads(_DEFAULT_IDS.read_text(encoding="utf-8"))
    return by_type


def value_text(value: object) -> str:
    """Return a value as JSON, shortened if it is long."""
    try:
        text = json.dumps(value, ensure_ascii=False)
    except (TypeError, ValueError):
        text = repr(value)
    return text if len(text) <= _LONGEST_SHOWN else f"{text[: _LONGEST_SHOWN - 3]}..."


def special_ids_of(value: object) -> tuple[int, ...]:
    """Return the ids in a value that is one id or a list, without negative ids; else ()."""
    values: Iterable[object] = value if isinstance(value, list | tuple) else (value,)
    return tuple(item for item in values if type(item) is int and item >= 0)
