"""What we say from_pretrained would leave unused and start afresh, against from_pretrained."""

import pytest
from checkpoints import BERT_CLASSES, TINY, Spoilt, expect, siblings, spoilt
from hypothesis import given
from parity_cases.prediction import predicted
from parity_cases.words import Word

import auditor
from auditor.analytic.loading import PLAIN
from auditor.reconciler.reconcile import Family, reconcile

pytestmark = pytest.mark.oracle


def _told(info) -> Word:
    """The library's own words."""
    return Word(
        frozenset(info["missing_keys"]),
        frozenset(info["unexpected_keys"]),
        frozenset((key, (tuple(a), tuple(b))) for key, a, b in info["mismatched_keys"]),
    )


def _in_memory(name: str) -> tuple[str]:
    return (PLAIN.reported(name)[0],)


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


@pytest.mark.parametrize("target", BERT_CLASSES)
@pytest.mark.parametrize("written", BERT_CLASSES)
def test_missing_unexpected_and_mismatched_keys_are_those_of_from_pretrained(
    saved, written: str, target: str
) -> None:
    import transformers  # noqa: PLC0415

    _, info = getattr(transformers, target).from_pretrained(
        saved[written], output_loading_info=True, ignore_mismatched_sizes=True
    )
    report = auditor.audit(str(saved[written]), target=target)
    assert isinstance(report, auditor.Report)
    assert predicted(report.findings, _in_memory) == _told(info)
    assert report.residual == 0


@given(spoilt())
def test_the_prediction_holds_for_checkpoints_that_are_spoilt(case: Spoilt) -> None:
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
    result = reconcile(
        one_file.values(),
        expect(case.target, **case.changes),
        Family(
            declared=expect(case.declared, **case.changes),
            siblings=lambda: siblings(**case.changes),
        ),
        indexed={},
    )
    assert predicted(result.findings, _in_memory) == _told(info)
