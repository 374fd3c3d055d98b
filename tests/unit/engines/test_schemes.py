"""The scheme of a quantization is what was recorded of exactly this declaration."""

from typing import Any

import pytest

from auditor.engines import knowledge_of
from auditor.engines.schemes import UNKNOWN, DeclaredSchemes, declared_schemes, scheme_text

_KEYS = {"gptq": ("bits", "sym"), "compressed-tensors": ("format", "weights.num_bits")}
_ROWS = (
    DeclaredSchemes("gptq", {"bits": (4,), "sym": (True,)}, ((0, False), (70, False), (75, "A"))),
    DeclaredSchemes("gptq", {"bits": (3,), "sym": (True,)}, ((0, False), (70, False)), (), "no"),
    DeclaredSchemes("gptq", {"bits": (1,), "sym": (None,)}, ((0, "A"), (70, "A"), (89, "B"))),
    DeclaredSchemes("gptq", {"bits": (4,), "sym": (True,)}, ((0, "C"),), ("special",)),
    DeclaredSchemes(
        "compressed-tensors", {"format": ("p",), "weights.num_bits": (4,)}, ((0, "D"),)
    ),
    DeclaredSchemes(
        "compressed-tensors", {"format": ("q",), "weights.num_bits": (8,)}, ((0, "E"),)
    ),
)


def _text(method: str, settings: dict[str, Any], model_type: str = "llama") -> str:
    return scheme_text(declared_schemes(_ROWS, _KEYS, method, settings, model_type))


def test_only_keys_that_the_engine_reads_are_compared(subtests: pytest.Subtests) -> None:
    for settings, text in [
        ({"bits": 4, "sym": True}, "A from compute capability 7.5"),
        ({"bits": 4, "sym": True, "damp_percent": 0.1}, "A from compute capability 7.5"),
        ({"bits": 3, "sym": True}, "none"),
        ({"bits": 1}, "A from compute capability 7.0, B from compute capability 8.9"),
        ({"bits": True}, UNKNOWN),
        ({"bits": 4, "sym": 1}, UNKNOWN),
        ({"bits": 4}, UNKNOWN),
        ({"bits": [4], "sym": True}, UNKNOWN),
        ({}, UNKNOWN),
    ]:
        with subtests.test(settings=settings):
            assert _text("gptq", settings) == text


def test_a_model_type_with_a_row_of_its_own_has_no_other_rows() -> None:
    assert _text("gptq", {"bits": 4, "sym": True}, "special") == "C"
    assert _text("gptq", {"bits": 3, "sym": True}, "special") == UNKNOWN


def test_each_group_of_modules_has_its_scheme(subtests: pytest.Subtests) -> None:
    for groups, text in [
        ([{"weights": {"num_bits": 4}}], "D"),
        ([{"weights": {"num_bits": 4}}, {"format": "q", "weights": {"num_bits": 8}}], "D and E"),
        ([{"weights": {"num_bits": 4}}, {"weights": {"num_bits": 2}}], UNKNOWN),
        ([{"weights": {"num_bits": 4}}] * 17, UNKNOWN),
        ([None], UNKNOWN),
        ([], UNKNOWN),
    ]:
        with subtests.test(groups=groups):
            named = {f"group_{number}": group for number, group in enumerate(groups)}
            assert _text("compressed-tensors", {"format": "p", "config_groups": named}) == text


def test_a_declaration_is_refused_if_every_platform_raises() -> None:
    assert [row.loads for row in _ROWS[:3]] == [None, False, True]


def test_the_recorded_rows_do_not_overlap(subtests: pytest.Subtests) -> None:
    for engine in ["vllm", "mlx"]:
        with subtests.test(engine=engine):
            known = knowledge_of(engine)
            assert known.schemes
            for row in known.schemes:
                one = {key: listed[0] for key, listed in row.values.items()}
                if row.method == "compressed-tensors":
                    group: dict[str, Any] = {}
                    for key, value in one.items():
                        part, _, field = key.partition(".")
                        if field:
                            group.setdefault(part, {})[field] = value
                    one = {"format": one["format"], "config_groups": {"group_0": group}}
                model_type = next(iter(row.model_types), "llama")
                found = declared_schemes(
                    known.schemes, known.scheme_keys, row.method, one, model_type
                )
                assert found == (row,)
