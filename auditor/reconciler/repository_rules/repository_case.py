"""RepositoryCase: the input of the rules about a repository."""

import json
import re
from collections.abc import Callable, Iterable, Mapping
from functools import cache, cached_property
from pathlib import Path
from typing import Any, NamedTuple

from msgspec import Struct, field

from auditor.analytic import ExpectedTensor
from auditor.analytic.config_classes import ConfigClass
from auditor.companions.reading import Companions
from auditor.observation import Checked
from auditor.tensors import StoredTensor

# Names of token embedding modules in transformers' classes.
_MODULES = (
    *("embed_tokens", "word_embeddings", "word_embedding", "wte", "shared", "tok_embeddings"),
    *("embed_in", "token_embedding", "token_embeddings", "tokens_embed", "embeddings"),
    *("embedding", "w"),
)
_STATIC, _MAPPING = "embeddings", "mapping"  # of model2vec: vectors, and the row of each token
_EMBEDDING = re.compile(rf"(?:^|\.)(?:{'|'.join(_MODULES)})\.weight$|^{_STATIC}$")
# Idefics stores the embeddings of added tokens in a separate tensor.
_ADDITIONAL = ".additional_embedding.weight"
# Ends of names; a few of 90,000 names have one.
_ENDINGS = (_ADDITIONAL, _STATIC, _MAPPING, *(f"{module}.weight" for module in _MODULES))

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
    memory_names: tuple[str, ...] = ()  # of the expected tensors, as transformers names them
    companions: Companions  # empty if companion files were not read
    settings: Mapping[str, Any] = field(default_factory=dict)  # settings of sentence-transformers
    checked: dict[str, Checked] = field(default_factory=dict)  # answers by line of `audit doctor`

    @cached_property
    def stored_rows(self) -> EmbeddingRows | None:
        return _longest_embedding(self.stored)

    @cached_property
    def rows(self) -> EmbeddingRows | None:
        """The number of embedded tokens by the headers, else by the config; None if unknown."""
        return self.stored_rows or _longest_embedding(self.expected())

    def unusable(self, *names: str) -> Checked | None:
        """Return why one of these companion files was not read or used; None if all were."""
        why = self.companions.why_unusable(*names)
        return Checked("unread", why) if why else None

    def absence(self, text: str) -> Checked:
        """Return the answer for files that are not there; a listing may be incomplete."""
        if self.is_complete or self.is_local:
            return Checked("absent", text)
        return Checked("unread", f"{text}, and not all files of the repository are listed")

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
    mapped = dict(shapes).get(_MAPPING)
    if mapped and len(mapped) == 1 and _STATIC in dict(shapes):
        return EmbeddingRows(mapped[0], _MAPPING)
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
