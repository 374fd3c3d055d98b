"""Names of tensors, folded: by example; that none is lost is law 5."""

import random

import pytest

from auditor.names.folding import expand, fold


def test_names_fold_to_these_patterns(subtests):
    for names, patterns in [
        ([], ()),
        ([""], ("",)),
        (["encoder.layer.0.bias"], ("encoder.layer.0.bias",)),
        (
            [f"encoder.layer.{n}.output.dense.bias" for n in range(12)],
            ("encoder.layer.{0-11}.output.dense.bias",),
        ),
        ([f"h.{n}.w" for n in (*range(6), *range(20, 26))], ("h.{0-5,20-25}.w",)),
        (["h.3.w", "h.7.w"], ("h.{3,7}.w",)),
        (
            [f"layers.{n}.mlp.experts.{e}.w1.weight" for n in range(61) for e in range(256)],
            ("layers.{0-60}.mlp.experts.{0-255}.w1.weight",),
        ),
        (["dense.weight", "dense.bias"], ("dense.{bias,weight}",)),
        (["a.weight", "a.bias", "b.bias"], ("a.{bias,weight}", "b.bias")),
        (["a.weight", "a.b.weight"], ("a.b.weight", "a.weight")),
        (
            [f"h.{n}.{x}.{y}" for n in range(2) for x in "kqv" for y in ("bias", "weight")],
            ("h.{0-1}.{k,q,v}.{bias,weight}",),
        ),
        (
            [f"model-{n:05}-of-00163.safetensors" for n in range(1, 164)],
            ("model-{00001-00163}-of-00163.safetensors",),
        ),
        (["x.00012"], ("x.00012",)),
        (["x.9", "x.09", "x.10"], ("x.{9,09-10}",)),
        (["x.8", "x.9", "x.10"], ("x.{8-10}",)),
        (["x.1-2", "x.1-3"], ("x.1-{2-3}",)),
        (["x.1-2", "x.y"], ("x.1-2", "x.y")),
        (["x.{0-3}", "x.{0-4}"], (r"x.\{0-3\}", r"x.\{0-4\}")),
        (["x.a,b", "x.c"], ("x.a,b", "x.c")),
        (["x\\y"], (r"x\\y",)),
        (["x..y", "x.z.y"], ("x..y", "x.z.y")),
        (["x.\u0661", "x.\u0662"], ("x.{\u0661,\u0662}",)),  # digits, but not of ours
        (["x" * 399 + ".1", "x" * 399 + ".2"], ("x" * 399 + ".1", "x" * 399 + ".2")),
        (["x" * 398 + ".1", "x" * 398 + ".2"], ("x" * 398 + ".{1-2}",)),
        ([f"x.{10**18}", f"x.{10**18 + 1}"], (f"x.{10**18}", f"x.{10**18 + 1}")),
    ]:
        with subtests.test(names=names):
            assert sorted(fold(names)) == sorted(patterns)


def test_an_expert_that_one_layer_lacks_costs_one_pattern():
    names = {f"layers.{n}.experts.{e}.w" for n in range(61) for e in range(256)}
    assert fold(names - {"layers.7.experts.255.w"}) == (
        "layers.{0-60}.experts.{0-254}.w",
        "layers.{0-6,8-60}.experts.255.w",
    )


def test_words_are_left_alone_where_only_numbers_are_to_fold():
    names = [f"h.{n}.{word}" for n in range(3) for word in ("bias", "weight")]
    assert fold(names, words=False) == ("h.{0-2}.bias", "h.{0-2}.weight")


@pytest.mark.slow
def test_ninety_thousand_names_fold_to_a_line_for_each_kind_of_tensor():
    words = ("gate_proj.weight", "up_proj.weight", "down_proj.weight")
    names = [f"layers.{n}.experts.{e}.{w}" for n in range(60) for e in range(500) for w in words]
    random.shuffle(names)
    assert fold(names) == ("layers.{0-59}.experts.{0-499}.{down_proj,gate_proj,up_proj}.weight",)


def test_names_of_thousands_of_numbers_are_left_as_they_are():
    names = [f"{'1.' * 5000}{n}" for n in range(20)]
    assert set(fold(names)) == set(names)


def test_expand_refuses_what_fold_never_makes(subtests):
    for pattern in ["x.{", "x.}", "x.{}", "x.{a{b}}", "x\\", "x\\y"]:
        message = "not a folded name, at character"
        with subtests.test(pattern=pattern), pytest.raises(ValueError, match=message):
            expand(pattern)
