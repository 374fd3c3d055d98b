"""The values of one config key with which a model has a given number of parameters.

Only values that published models have, and defaults of the config class, are considered: with any
value, any number can be explained.
"""

import re
from collections.abc import Callable, Container, Iterator
from typing import Any

from auditor.claims.subject import Subject

# Vocabularies of published models: BERT, GPT-2, RoBERTa, T5, Llama, Qwen, Gemma, DeepSeek, others.
_VOCABULARIES = frozenset(
    {
        *(21128, 28996, 30000, 30522, 31002, 31090, 32000, 32001, 32003, 32064, 32100, 32102),
        *(32128, 32256, 32768, 35000, 40478, 42384, 49152, 49408, 50005, 50257, 50264, 50265),
        *(50272, 50280, 50288, 50295, 50304, 50368, 50400, 50432, 51200, 51864, 51865, 51866),
        *(52000, 64000, 64001, 65024, 65536, 92544, 100277, 100352, 102400, 103168, 105879),
        *(119547, 119548, 125696, 128000, 128100, 128112, 128256, 128512, 129280, 130528),
        *(131072, 151552, 151643, 151936, 152064, 163840, 200019, 201088, 248320, 250002),
        *(250112, 250680, 250880, 251000, 255029, 256000, 256008, 256128, 256206, 257152),
        *(262144, 262208),
    }
)
_LENGTHS = frozenset({128, 256, 257, 512, 514, 577, 768, 1024, 1026, 2048, 2050, 4096, 4098, 8192})
_KNOWN: tuple[tuple[str, Container[int]], ...] = (
    (r"type_vocab", range(1, 17)),
    (r"vocab", _VOCABULARIES),
    (r"(^|_)layers?$|^n_layer|depth", range(1, 129)),
    (r"position|n_ctx|^n_positions|length", _LENGTHS),
    (r"labels", (2, 3, 5, 10, 77, 100, 1000, 1001, 21841, 21843)),
)


def values_with_total(
    subject: Subject, total_with: Callable[[str, Any], int | None], own: int, total: int
) -> Iterator[tuple[str, Any]]:
    """Yield the keys, each with a value, with which a count of `own` parameters is `total`.

    `total_with` counts with another value of one key; None if that cannot be built.
    """

    def guesses(key: str, value: int) -> Iterator[int]:
        """Yield the default, and the value if the count grows in proportion to it."""
        default = subject.class_defaults.get(key)
        if isinstance(default, int):
            yield default
        last = key.rpartition(".")[2]
        known = next((values for words, values in _KNOWN if re.search(words, last)), ())
        if known and value and (double := total_with(key, 2 * value)) is not None:
            solved, rest = divmod((total - own) * value, double - own or total + 1)
            if not rest and solved + value in known:
                yield solved + value

    changed = [
        *((key, other) for key, value in subject.sizes.items() for other in guesses(key, value)),
        *((key, not value) for key, value in subject.flags()),
    ]
    for key, value in dict.fromkeys(changed):
        if total_with(key, value) == total:
            yield key, value
