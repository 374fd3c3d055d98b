"""The load report of an audit, against from_pretrained's, and against the findings beside it."""

from itertools import product
from typing import Any

import pytest
from hypothesis import given
from msgspec.structs import replace
from support.bert_configs import config_of
from support.checkpoints import (
    BERT_CLASSES,
    TINY,
    Spoilt,
    expect,
    siblings,
    spoilt,
    stored,
    stored_by,
)
from support.examples import one_in

import auditor
from auditor.analytic import Expectation, catalogue
from auditor.findings import BadHeader, Finding, StoredBuffer, Unexpected, Unused
from auditor.reconciler.contents import Contents, Unread
from auditor.reconciler.loading.predict import predict
from auditor.reconciler.loading.report import LoadReport, Mismatch, Predicted
from auditor.reconciler.reconcile import FamilyExpectations, reconcile
from auditor.tensors import StoredTensor


def told(info: dict[str, Any]) -> LoadReport:
    """The library's own words."""
    found = ((key, tuple(a), tuple(b)) for key, a, b in info["mismatched_keys"])
    return LoadReport(
        missing=tuple(sorted(info["missing_keys"])),
        unexpected=tuple(sorted(info["unexpected_keys"])),
        mismatched=tuple(Mismatch(*one) for one in sorted(found)),
    )


def contents(*tensors: StoredTensor, **others: Any) -> Contents:
    values: dict[str, Any] = {"unread": (), "names_only": False, **others}
    return Contents(
        tensors=tensors, index=None, opened=frozenset(), unread_files=0, findings=(), **values
    )


def predicted(
    found: Contents, target: Expectation, family: FamilyExpectations, packed: str | None = None
) -> tuple[Predicted, tuple[Finding, ...]]:
    result = reconcile(found, target, family)
    return predict(found, target, result, result.findings, packed), result.findings


# --- against the library ----------------------------------------------------------------------


@pytest.fixture(scope="module", params=[True, False], ids=["tied", "untied"])
def saved(request, tmp_path_factory):
    """One folder for each class, as save_pretrained writes it at small size."""
    import transformers  # noqa: PLC0415

    folders = {}
    for name in BERT_CLASSES:
        config = transformers.BertConfig(
            **TINY, num_labels=3, tie_word_embeddings=request.param, architectures=[name]
        )
        folder = tmp_path_factory.mktemp(name)
        getattr(transformers, name)(config).save_pretrained(folder)
        folders[name] = folder
    return folders


@pytest.mark.oracle
@pytest.mark.parametrize(("written", "target"), one_in(4, product(BERT_CLASSES, BERT_CLASSES)))
def test_the_load_report_is_that_of_from_pretrained(saved, written: str, target: str) -> None:
    import transformers  # noqa: PLC0415

    _, info = getattr(transformers, target).from_pretrained(
        saved[written], output_loading_info=True, ignore_mismatched_sizes=True
    )
    report = auditor.audit(str(saved[written]), target=target)
    assert isinstance(report, auditor.Report)
    assert report.load_report == told(info)
    assert report.residual == 0


@pytest.mark.oracle
@given(spoilt())
def test_the_load_report_holds_for_checkpoints_that_are_spoilt(case: Spoilt) -> None:
    import torch  # noqa: PLC0415
    import transformers  # noqa: PLC0415

    one_file = {tensor.name: tensor for tensor in case.tensors}
    config = transformers.BertConfig(**{**TINY, **case.changes})
    _, info = getattr(transformers, case.target).from_pretrained(
        None,
        config=config,
        state_dict={name: torch.zeros(tensor.shape) for name, tensor in one_file.items()},
        output_loading_info=True,
        ignore_mismatched_sizes=True,
    )
    found, _ = predicted_of(case)
    assert found.report == told(info)


def predicted_of(case: Spoilt) -> tuple[Predicted, tuple[Finding, ...]]:
    family = FamilyExpectations(
        declared=expect(case.declared, **case.changes),
        siblings=lambda: siblings(**case.changes),
    )
    return predicted(contents(*case.tensors), expect(case.target, **case.changes), family)


# --- against the findings ---------------------------------------------------------------------


@given(spoilt())
def test_each_name_of_the_report_is_one_that_a_finding_looks_for(case: Spoilt) -> None:
    found, findings = predicted_of(case)
    assert found.report is not None
    assert found.in_memory is not None
    assert set(found.in_memory) == {name for finding in findings for name in finding.names}
    looked_for = {name for names in found.in_memory.values() for name in names}
    assert found.report.names <= looked_for


@given(spoilt())
def test_a_finding_is_silent_where_the_report_is(case: Spoilt) -> None:
    found, findings = predicted_of(case)
    assert found.report is not None
    assert found.in_memory is not None
    for finding in findings:
        if finding.kind in {Unexpected.kind, Unused.kind, StoredBuffer.kind}:
            names = [set(found.in_memory[name]) for name in finding.names]
            assert {found.report.names.isdisjoint(each) for each in names} == {finding.silent}


# --- where nobody can tell --------------------------------------------------------------------

BERT = expect("BertModel")
FAMILY = FamilyExpectations(declared=BERT, siblings=lambda: ())
WHOLE = stored_by(BERT)


def test_a_complete_checkpoint_loads_without_warnings() -> None:
    found, _ = predicted(contents(*WHOLE), BERT, FAMILY)
    assert found == Predicted(LoadReport(), {})


def test_a_buffer_of_old_is_reported_where_no_rule_is_silent_about_it() -> None:
    """GPT-2 leaves out `attn.bias` and not `attn.masked_bias`; older versions stored both."""
    values = {"model_type": "gpt2", "n_layer": 1, "n_embd": 4, "n_head": 1, "vocab_size": 8}
    gpt2 = catalogue.expect(config_of(**values), "GPT2Model")
    of_old = [stored("h.0.attn.bias", (1, 1, 1024, 1024)), stored("h.0.attn.masked_bias", ())]
    whole = [*stored_by(gpt2), *of_old]
    found, _ = predicted(
        contents(*whole), gpt2, FamilyExpectations(declared=gpt2, siblings=lambda: ())
    )
    assert found.report == LoadReport(unexpected=("h.0.attn.masked_bias",))


def test_a_buffer_is_loaded_from_under_the_base_models_prefix_too(subtests):
    """The prefix is cut off wherever the rest is a name: rename_source_key in transformers."""
    for name in ["final_logits_bias", "model.final_logits_bias"]:
        for model_type, target in [
            ("bart", "BartForConditionalGeneration"),
            ("mbart", "MBartForConditionalGeneration"),
            ("pegasus", "PegasusForConditionalGeneration"),
            ("marian", "MarianMTModel"),
        ]:
            with subtests.test(model_type=model_type, target=target, name=name):
                model = catalogue.expect(
                    config_of(model_type=model_type, vocab_size=8, pad_token_id=1), target
                )
                learned = [one for one in stored_by(model) if one.name != "final_logits_bias"]
                found = contents(*learned, stored(name, (1, 8)))
                told, findings = predicted(
                    found, model, FamilyExpectations(declared=model, siblings=lambda: ())
                )
                assert told.report == LoadReport()
                assert [one.kind for one in findings if name in one.names] == [StoredBuffer.kind]


def test_names_alone_yield_no_shapes_and_no_report() -> None:
    names = [one._replace(shape=None, dtype=None, span=None, elements=None) for one in WHOLE]
    extra = names[0]._replace(name="bert.extra")
    found, _ = predicted(contents(*names, extra, names_only=True), BERT, FAMILY)
    assert found == Predicted(in_memory={"bert.extra": ("bert.extra",)})


def test_a_file_that_cannot_be_read_may_hold_anything() -> None:
    unread = Unread(BadHeader, "model-2.safetensors", "it is empty", None)
    found, _ = predicted(contents(*WHOLE[1:], unread=(unread,)), BERT, FAMILY)
    assert found == Predicted(in_memory={})


def test_several_files_that_no_index_names_are_not_found() -> None:
    files = ("a.safetensors", "b.safetensors")
    halves = (one._replace(file=files[place % 2]) for place, one in enumerate(WHOLE))
    found, _ = predicted(replace(contents(*halves), opened=frozenset(files)), BERT, FAMILY)
    assert found.report is None
    assert found.unchecked == (
        "the load report: transformers finds several files by an index, and none is here",
    )


def test_packed_weights_are_reported_to_depend_on_the_machine() -> None:
    found, _ = predicted(contents(*WHOLE), BERT, FAMILY, packed="gptq")
    assert found.report is None
    assert found.in_memory is None
    assert found.unchecked == (
        "the load report: it depends on the software that loads this layout (gptq)",
    )


def test_the_last_file_counts_that_has_a_name() -> None:
    """As from_pretrained reads them: model-2 after model-1, whatever order they are listed in."""
    twice = stored(WHOLE[0].name, (1,), file="model-0.safetensors")
    found, _ = predicted(contents(*WHOLE, twice), BERT, FAMILY)
    assert found.report == LoadReport()
    other = stored(WHOLE[0].name, (1,), file="z.safetensors")
    found, _ = predicted(contents(other, *WHOLE), BERT, FAMILY)
    mismatch = Mismatch(WHOLE[0].name, (1,), WHOLE[0].shape)
    assert found.report == LoadReport(mismatched=(mismatch,))
