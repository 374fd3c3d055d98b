"""parallel-rank is not said of a small part of a model, whose width the config doubles."""

from support.checkpoints import TINY, expect, stored, stored_by
from support.small_snapshots import snapshot_of

from auditor.analytic import Config, catalogue
from auditor.audit.options import Options
from auditor.audit.pipeline import examine

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
