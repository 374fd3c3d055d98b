"""Closed forms of diffusers' classes, without diffusers: what is outside of them."""

import pytest
from support.diffusers_configs import PUBLISHED, UNET

from auditor.analytic import Config
from auditor.analytic.diffusion import expect_diffusers
from auditor.errors import CheckpointError, SourceError


def test_what_no_form_covers_names_its_key(subtests):
    for key, value in [
        ("down_block_types", ["KDownBlock2D"] * 4),
        ("up_block_types", ["UpBlock2D"] * 3),
        ("dual_cross_attention", True),
        ("attention_type", "gated"),
        ("addition_embed_type", "image"),
        ("class_embed_type", "other"),
        ("norm_num_groups", None),
        ("transformer_layers_per_block", [1, 1, 1, [1, 2]]),
        ("a_key_of_the_future", 3),
    ]:
        with subtests.test(key=key, value=value), pytest.raises(SourceError, match=f"'{key}'"):
            expect_diffusers(Config(values={key: value}), UNET)


def test_a_size_out_of_bounds_is_refused(subtests):
    for key, value in [
        ("block_out_channels", [8] * 100_000),
        ("block_out_channels", []),
        ("block_out_channels", [-8, 8, 8, 8]),
        ("layers_per_block", 2**40),
        ("layers_per_block", -1),
        ("transformer_layers_per_block", 2**40),
        ("attention_head_dim", 0),
        ("cross_attention_dim", None),
        ("in_channels", "4"),
    ]:
        with subtests.test(key=key, value=value), pytest.raises(CheckpointError, match=key):
            expect_diffusers(Config(values={key: value}), UNET)


def test_a_key_that_turns_nothing_on_is_ignored(subtests):
    for key, value in [("decay", 0.99), ("future", None), ("_x", 1)]:
        with subtests.test(key=key, value=value):
            target, config = PUBLISHED["SD 1.5 UNet"]
            plain, more = (Config(values=values) for values in (config, config | {key: value}))
            assert expect_diffusers(more, target) == expect_diffusers(plain, target)
