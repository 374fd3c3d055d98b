"""Keys of a solved config that no shape gives are named, and every other one is unique."""

from hypothesis import given
from hypothesis import strategies as st
from support.examples import examples

from auditor.analytic import Config, catalogue
from auditor.diagnosis.solving.holdings import HeldTensors
from auditor.diagnosis.solving.keys import changed
from auditor.diagnosis.solving.open_keys import open_keys
from auditor.diagnosis.solving.trials import ClassTree, Trials
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
