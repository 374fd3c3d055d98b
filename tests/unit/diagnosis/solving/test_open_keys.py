"""Keys of a solved config that no shape gives are named, and every other one is unique."""

from hypothesis import given
from hypothesis import strategies as st
from support.examples import examples

from auditor.analytic import Config, catalogue
from auditor.analytic.config_keys import changed
from auditor.analytic.outline import ClassTree
from auditor.diagnosis.solving.held_tensors import HeldTensors
from auditor.diagnosis.solving.open_keys import open_keys
from auditor.diagnosis.solving.trials import Trials
from auditor.errors import CheckpointError

LLAMA = {
    "model_type": "llama",
    "vocab_size": 100,
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
}
LFM2 = LLAMA | {
    "model_type": "lfm2",
    "block_ff_dim": 96,
    "block_multiple_of": 16,
    "layer_types": ["conv", "full_attention", "conv"],
}


class Files:
    """A declared config, and the tensors of a config with other values."""

    def __init__(self, target, config, values):
        self.target, self.config = target, config
        true = catalogue.expect(Config(values=changed(config, values)), target)
        shapes = {one.name: one.shape for one in true.needed}
        self.trials = Trials(HeldTensors(shapes), None)

    def tree(self, values):
        config = Config(values=changed(self.config, values))
        prefix = catalogue.family(config.values["model_type"]).prefix
        return ClassTree(catalogue.block_tree(config, self.target), prefix)

    def open_keys(self, values):
        return open_keys(self.config, values, self.tree, self.trials)

    def fits(self, values):
        try:
            return not self.trials.compare(self.tree(values)).differ
        except CheckpointError:
            return False


@examples(20)
@given(
    st.fixed_dictionaries(
        {
            "hidden_size": st.sampled_from([32, 48, 80]),
            "intermediate_size": st.integers(10, 90),
            "num_hidden_layers": st.integers(1, 6),
            "vocab_size": st.integers(10, 90),
        }
    )
)
def test_no_value_near_a_determined_one_fits_as_well(values):
    files = Files("LlamaForCausalLM", LLAMA, values)
    named = files.open_keys(values)
    assert named == {"num_attention_heads": 4, "num_key_value_heads": 2}
    near = [{**values, key: value + step} for key, value in values.items() for step in (-1, 1)]
    assert not any(map(files.fits, near))


def test_a_flag_and_the_width_that_depends_on_it_are_both_open():
    """Rows of a feed-forward layer: the declared width, or two thirds of it, rounded up."""
    declared = LFM2 | {"block_auto_adjust_ff_dim": False}
    values = {"hidden_size": 32, "block_ff_dim": 64}
    files = Files("Lfm2ForCausalLM", declared, values)
    assert files.fits({"hidden_size": 32, "block_ff_dim": 96, "block_auto_adjust_ff_dim": True})
    named = files.open_keys(values)
    assert {"block_ff_dim": 96, "block_auto_adjust_ff_dim": False}.items() <= named.items()
    assert "hidden_size" not in named


def test_two_factors_of_a_stored_product_are_both_open():
    declared = {
        "model_type": "mamba2",
        "vocab_size": 50,
        "hidden_size": 16,
        "num_hidden_layers": 2,
        "num_heads": 4,
        "head_dim": 8,
        "state_size": 6,
        "n_groups": 1,
    }
    values = {"num_hidden_layers": 3, "n_groups": 2}
    files = Files("Mamba2ForCausalLM", declared, values)
    assert files.fits({"num_hidden_layers": 3, "state_size": 12})
    assert {"n_groups": 1, "state_size": 6}.items() <= files.open_keys(values).items()


def test_the_activation_of_gated_layers_is_open():
    declared = {
        "model_type": "t5",
        "vocab_size": 50,
        "d_model": 16,
        "d_ff": 24,
        "num_layers": 2,
        "num_heads": 4,
        "feed_forward_proj": "relu",
    }
    values = {"d_ff": 32, "feed_forward_proj": "gated-gelu"}
    files = Files("T5ForConditionalGeneration", declared, values)
    assert files.fits(values | {"feed_forward_proj": "gated-silu"})
    assert files.open_keys(values) == {"feed_forward_proj": "relu"}


def test_a_flag_that_fits_with_two_further_keys_is_open_if_heads_are_too_wide():
    declared = {
        "model_type": "falcon",
        "vocab_size": 50,
        "hidden_size": 8192,
        "num_hidden_layers": 2,
        "num_attention_heads": 32,
        "num_kv_heads": 8,
        "new_decoder_architecture": True,
    }
    true = {"hidden_size": 4096, "num_ln_in_parallel_attn": 1}
    other = {"hidden_size": 4096, "num_attention_heads": 4, "new_decoder_architecture": False}
    files = Files("FalconForCausalLM", declared, true)
    assert files.fits(true)
    assert files.fits(other)
    named = files.open_keys(other)
    assert {"new_decoder_architecture", "num_attention_heads"} <= named.keys()
