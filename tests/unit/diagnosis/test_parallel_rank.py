"""parallel-rank is not said of a small part of a model, whose width the config doubles."""

import pytest
from support.checkpoints import LLAMA, TINY, expect, stored, stored_by
from support.small_snapshots import snapshot_of

from auditor.analytic import Config, catalogue
from auditor.audit.options import Options
from auditor.audit.pipeline import examine

MIXTRAL = {**LLAMA, "model_type": "mixtral"}
SAM = {"model_type": "sam", "architectures": ["SamModel"]}


def test_a_prompt_encoder_of_half_the_width_is_no_rank():
    tensors = stored_by(catalogue.expect(Config(values=SAM), "SamModel"))
    wider = {**SAM, "prompt_encoder_config": {"hidden_size": 512}}
    [found] = examine(snapshot_of(tensors, **wider), Options(requested="sam")).diagnosis
    assert found.cause == "config-field"
    assert found.fields == (("prompt_encoder_config.hidden_size", 512, 256),)


def test_a_number_alone_is_no_part_of_a_vocabulary():
    """A tensor without an axis, beside one of half its length."""
    changed = {"pooler.dense.bias": (), "pooler.dense.weight": (2, 4)}
    tensors = [
        stored(tensor.name, changed.get(tensor.name, tensor.shape))
        for tensor in stored_by(expect("BertModel"))
    ]
    report = examine(
        snapshot_of(tensors, **TINY, architectures=["BertModel"]), Options(requested="bert")
    )
    assert {name for one in report.findings for name in one.names} == changed.keys()
    assert report.diagnosis == ()


@pytest.mark.parametrize(
    ("kept", "causes"),
    [
        ((0, 1), ["parallel-rank"]),
        ((2, 3), ["parallel-rank"]),
        ((3,), ["parallel-rank"]),
        ((1, 2), []),  # no rank has the end of one share and the start of another
        ((0, 1, 2), []),  # each rank would have as many
    ],
)
def test_experts_are_those_of_a_rank_where_all_ranks_have_as_many(kept, causes):
    config = {**MIXTRAL, "num_local_experts": 4}
    lost = tuple(f".experts.{number}." for number in range(4) if number not in kept)
    whole = stored_by(expect("MixtralForCausalLM", **config))
    tensors = [one for one in whole if not any(part in one.name for part in lost)]
    snapshot = snapshot_of(tensors, architectures=["MixtralForCausalLM"], **config)
    report = examine(snapshot, Options(requested="mixtral"))
    assert [one.cause for one in report.diagnosis] == causes
