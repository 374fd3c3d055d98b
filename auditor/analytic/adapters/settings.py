"""The settings of an adapter_config.json: the method, the base, and the chosen modules."""

import re
from collections.abc import Iterable, Mapping
from types import MappingProxyType

from msgspec import Struct

from auditor.analytic.config import Config
from auditor.analytic.family import Family
from auditor.bounded.json_text import JsonFile
from auditor.bounded.patterns import PatternNotFollowedError, names_matching
from auditor.errors import CheckpointError, Reason, SourceError
from auditor.messages import described, quoted

FILE = "adapter_config.json"

# The defaults in peft's config classes of the keys that shape tensors. A key means the same in all
# methods, except rank_pattern in AdaLoRA.
_PEFT = Family(
    model_type="",
    prefix="",
    base="",
    own=MappingProxyType(
        {
            "r": 8,
            "init_r": 12,
            "bias": "none",
            "use_dora": False,
            "lora_bias": False,
            "target_modules": None,
            "exclude_modules": None,
            "feedforward_modules": None,
            "target_parameters": None,
            "layers_to_transform": None,
            "layers_pattern": None,
            "rank_pattern": None,
            "modules_to_save": None,
            "trainable_token_indices": None,
            "token_indices": (),
            "ensure_weight_tying": False,
            "num_transformer_submodules": None,
            "num_tasks": 1,
            "num_ranks": 1,
            "n_frequency": 1000,
            "n_frequency_pattern": None,
            "save_projection": True,
            "use_effective_conv2d": False,
        }
    ),
)

FEATURES = "FEATURE_EXTRACTION"  # the task for which peft loads the base with AutoModel
# Task of the adapter -> endings of the class that peft loads the base with; and the modules that it
# trains completely for that task, even if an older version did not write them into the settings.
HEADS: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "CAUSAL_LM": ("ForCausalLM", "LMHeadModel"),
        "SEQ_2_SEQ_LM": ("ForConditionalGeneration", "MTModel"),
        "SEQ_CLS": ("ForSequenceClassification",),
        "TOKEN_CLS": ("ForTokenClassification",),
        "QUESTION_ANS": ("ForQuestionAnswering",),
        FEATURES: ("EncoderModel",),
    }
)
TRAINED_BY_TASK: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "SEQ_CLS": ("classifier", "score"),
        "TOKEN_CLS": ("classifier", "score"),
        "QUESTION_ANS": ("qa_outputs",),
    }
)
OTHER_THAN_TEXT = frozenset({FEATURES, *TRAINED_BY_TASK})  # tasks that generate no text
_PATH = re.compile(r"^(?:[/~.]|file:|[A-Za-z]:[\\/])|\\|^(?!\w+://).*/.*/|^[^:]*/$")
_MOST_SAVED = 1000  # most names in modules_to_save; each is compared with every module
_MOST_LAYERS = 100_000
_HIGHEST = 2**40  # the highest rank; axes of real models are far shorter
ALL_LINEAR = "all-linear"


class ModuleNames(Struct, frozen=True, kw_only=True):
    """A choice of modules by name endings or by an expression; all linears if neither is set."""

    ends: frozenset[str] | None = None
    expression: str | None = None


class AdapterSettings(Struct, frozen=True, kw_only=True):
    """The values of one adapter_config.json.

    A method that reads a value raises CheckpointError with the key.
    """

    method: str  # peft_type in upper case: "LORA"
    base: str | None  # base_model_name_or_path: a Hub id or a path
    revision: str | None  # of the base
    task: str | None  # task_type: "CAUSAL_LM"
    base_class: str | None  # from auto_mapping
    config: Config  # for keys that a single method reads

    @property
    def names_path(self) -> bool:
        """Whether the base is a path on the trainer's disk; a Hub id has at most one slash."""
        return self.base is not None and _PATH.search(self.base) is not None

    def rank(self, key: str = "r") -> int:
        value = self.config.integer(key)
        if not 1 <= value <= _HIGHEST:
            raise CheckpointError(f"{key} is {described(value)}, expected 1 to {_HIGHEST:,}")
        return value

    def count(self, key: str) -> int:
        value = self.config.integer(key)
        if value < 1:
            raise CheckpointError(f"{key} is {value}, expected at least 1")
        return value

    def names(self, key: str) -> ModuleNames | None:
        """Return the modules that a key chooses; None if it is null or an empty list."""
        if not self.config.present(key):
            return None
        value = self.config.values.get(key)
        if isinstance(value, str):
            if value.lower() == ALL_LINEAR:
                return ModuleNames()
            return ModuleNames(expression=value)
        ends = frozenset(self.config.texts(key))
        return ModuleNames(ends=ends) if ends else None

    def saved(self) -> tuple[str, ...]:
        """Return the endings of the names of modules that are stored completely."""
        listed = (
            self.config.texts("modules_to_save") if self.config.present("modules_to_save") else ()
        )
        names = dict.fromkeys((*listed, *TRAINED_BY_TASK.get(self.task or "", ())))
        if len(names) > _MOST_SAVED:
            raise CheckpointError(
                f"modules_to_save has {len(names):,} names, expected at most {_MOST_SAVED:,}"
            )
        if "" in names:
            raise CheckpointError("modules_to_save has an empty name, which matches every module")
        return tuple(names)

    def ranks(self) -> Mapping[str, int]:
        """Return rank_pattern in its order: expression for endings of module names -> rank."""
        ranks = self.table("rank_pattern")
        for name, value in ranks.items():
            if type(value) is not int or not 1 <= value <= _HIGHEST:
                where = f"the rank of {quoted(name)} in rank_pattern"
                raise CheckpointError(
                    f"{where} is {described(value)}, expected a whole number from 1 on"
                )
        return {name: value for name, value in ranks.items() if isinstance(value, int)}

    def table(self, key: str) -> Mapping[str, object]:
        """Return the object under a key, an empty one if it is null or absent."""
        return self.config.nested(key).values

    def layers(self) -> frozenset[int] | None:
        """Return the layer numbers in layers_to_transform; None for all layers."""
        if not self.config.present("layers_to_transform"):
            return None
        if type(self.config.values["layers_to_transform"]) is int:
            return frozenset((self.config.integer("layers_to_transform"),))
        numbers = frozenset(self.config.integers("layers_to_transform"))
        if len(numbers) > _MOST_LAYERS:
            raise CheckpointError(f"layers_to_transform has {len(numbers):,} numbers")
        return numbers or None

    def states(self, key: str) -> bool:
        """Return whether Python treats the value of a key as true."""
        return bool(self.config.values.get(key))


def paths_matching(key: str, expression: str, paths: Iterable[str]) -> frozenset[str]:
    """Return the paths that the regular expression matches completely; `key` is its config key.

    Raise SourceError if the expression is not supported.
    """
    try:
        return names_matching([expression], paths)
    except PatternNotFollowedError as error:
        raise unchecked_adapter(
            f"{key} has the expression {quoted(expression)}, which is not followed: {error}"
        ) from None


def unchecked_adapter(what: str) -> SourceError:
    """Return the error for an adapter that may be valid but is not supported here."""
    return SourceError(Reason.UNKNOWN_LAYOUT, f"not checked: {what}")


def read_settings(file: JsonFile) -> AdapterSettings:
    """Return the settings in an adapter_config.json; raise CheckpointError if it cannot be read."""
    config = Config(values=MappingProxyType(dict(file.object)), family=_PEFT)
    method = _text(config, "peft_type")
    if method is None:
        raise CheckpointError(f"{file.name} has no peft_type, expected the method of the adapter")
    mapping = config.nested("auto_mapping")
    return AdapterSettings(
        method=method.upper(),
        base=_text(config, "base_model_name_or_path"),
        revision=_text(config, "revision"),
        task=_text(config, "task_type"),
        base_class=_text(mapping, "base_model_class"),
        config=config,
    )


def _text(config: Config, key: str) -> str | None:
    """Return the string under a key; None if it is null, absent or empty."""
    value = config.values.get(key)
    if value is not None and not isinstance(value, str):
        where = f"{config.path}{key}"
        raise CheckpointError(f"{where} is {described(value)}, expected a string")
    return value or None
