"""Write auditor/data/pickle_names.json: the classes and functions that a harmless pickle imports.

`weights_only` is the list of the installed torch. The Trainer of transformers saves the other two
in training_args.bin: an enum is called with its value, a plain object is given its attributes.
"""

import inspect
import json
from collections.abc import Iterator
from dataclasses import is_dataclass
from enum import Enum
from importlib import import_module
from pathlib import Path

PLACE = Path(__file__).resolve().parents[1] / "auditor" / "data" / "pickle_names.json"
MODULES = (
    "accelerate.state",
    "accelerate.utils.dataclasses",
    "transformers.debug_utils",
    "transformers.trainer_pt_utils",
    "transformers.trainer_utils",
    "transformers.training_args",
    "transformers.training_args_seq2seq",
)
STATE = "PartialState"  # not a dataclass, and saved by older versions of transformers
# Enums of older versions of transformers, and of sentence-transformers 5 and 6. A version that does
# not have a name cannot import it, and runs nothing.
OTHER_ENUMS = (
    "sentence_transformers.base.sampler.BatchSamplers",
    "sentence_transformers.base.sampler.MultiDatasetBatchSamplers",
    "sentence_transformers.training_args.BatchSamplers",
    "sentence_transformers.training_args.MultiDatasetBatchSamplers",
    "transformers.trainer_utils.EvaluationStrategy",
    "transformers.trainer_utils.FSDPOption",
    "transformers.trainer_utils.ShardedDDPOption",
)
# Dataclasses of trl 1.16 and sentence-transformers 5 and 6, which derive from TrainingArguments.
OTHER_OBJECTS = (
    "sentence_transformers.cross_encoder.training_args.CrossEncoderTrainingArguments",
    "sentence_transformers.sentence_transformer.training_args.SentenceTransformerTrainingArguments",
    "sentence_transformers.sparse_encoder.training_args.SparseEncoderTrainingArguments",
    "sentence_transformers.training_args.SentenceTransformerTrainingArguments",
    "trl.trainer.dpo_config.DPOConfig",
    "trl.trainer.grpo_config.GRPOConfig",
    "trl.trainer.kto_config.KTOConfig",
    "trl.trainer.reward_config.RewardConfig",
    "trl.trainer.rloo_config.RLOOConfig",
    "trl.trainer.sft_config.SFTConfig",
)


def weights_only_names() -> list[str]:
    from torch._weights_only_unpickler import _get_allowed_globals  # noqa: PLC0415 - two seconds

    return sorted(_get_allowed_globals())


def enum_names() -> list[str]:
    return sorted({*OTHER_ENUMS, *(path(kind) for kind in own_classes() if issubclass(kind, Enum))})


def plain_object_names() -> list[str]:
    """The dataclasses, of which unpickling calls no method."""
    plain = (kind for kind in own_classes() if is_dataclass(kind) or kind.__name__ == STATE)
    own = ("__setstate__", "__setattr__", "__new__")
    names = (path(kind) for kind in plain if not any(name in vars(kind) for name in own))
    return sorted({*OTHER_OBJECTS, *names})


def own_classes() -> Iterator[type]:
    for module in map(import_module, MODULES):
        for _, kind in inspect.getmembers(module, inspect.isclass):
            if kind.__module__ == module.__name__:
                yield kind


def path(kind: type) -> str:
    return f"{kind.__module__}.{kind.__qualname__}"


def main() -> None:
    names = {
        "weights_only": weights_only_names(),
        "enums": enum_names(),
        "plain_objects": plain_object_names(),
    }
    PLACE.write_text(json.dumps(names, indent=1) + "\n")


if __name__ == "__main__":
    main()
