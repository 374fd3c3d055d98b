"""Heads that a config says are not tied, and that their class ties: what is stored decides."""

import tempfile
from pathlib import Path

import pytest
from support.pipelines import text

import auditor
from auditor.findings import Duplicate, TiedWeight

transformers = pytest.importorskip("transformers", reason="writes the checkpoints")
torch = pytest.importorskip("torch")
safetensors = pytest.importorskip("safetensors.torch")
pytestmark = pytest.mark.oracle

SMALL = {"vocab_size": 40, "d_model": 16, "d_kv": 8, "d_ff": 24, "num_layers": 2, "num_heads": 2}
TYPES = {"t5": "T5", "mt5": "MT5", "umt5": "UMT5"}  # the last without a closed form


def saved(folder: Path, model_type: str, *, head: bool, tied: bool | None) -> Path:
    """A checkpoint of random numbers, with a head of its own or without."""
    config = transformers.AutoConfig.for_model(model_type, **SMALL)
    name = f"{TYPES[model_type]}ForConditionalGeneration"
    getattr(transformers, name)(config).save_pretrained(folder)
    values = config.to_diff_dict() | {"architectures": [name], "tie_word_embeddings": tied}
    if tied is None:
        del values["tie_word_embeddings"]
    (folder / "config.json").write_bytes(text(values))
    if head:
        weights = safetensors.load_file(folder / "model.safetensors")
        weights["lm_head.weight"] = torch.randn(40, 16)
        safetensors.save_file(weights, folder / "model.safetensors", {"format": "pt"})
    return folder


def loaded(folder: Path, model_type: str) -> int:
    """The parameters that the library counts once it has loaded them."""
    model_class = getattr(transformers, f"{TYPES[model_type]}ForConditionalGeneration")
    return model_class.from_pretrained(folder).num_parameters()


def test_two_matrices_that_the_config_does_not_tie_are_two(subtests, tmp_path):
    for model_type in TYPES:
        with subtests.test(model_type=model_type):
            place = Path(tempfile.mkdtemp(dir=tmp_path))
            folder = saved(place, model_type, head=True, tied=False)
            report = auditor.audit(str(folder))
            assert (report.verdict, report.residual) == ("clean", 0)
            count = loaded(folder, model_type)
            assert report.observed.parameters == report.expected.parameters == count
            tied = [
                name for one in report.findings if isinstance(one, TiedWeight) for name in one.names
            ]
            assert "lm_head.weight" not in tied


def test_one_matrix_is_both_whatever_the_config_declares(subtests, tmp_path):
    for tied in [False, True, None]:
        for model_type in TYPES:
            with subtests.test(model_type=model_type, tied=tied):
                place = Path(tempfile.mkdtemp(dir=tmp_path))
                folder = saved(place, model_type, head=False, tied=tied)
                report = auditor.audit(str(folder))
                assert (report.verdict, report.residual) == ("clean", 0)
                assert report.observed.parameters == loaded(folder, model_type)


def test_a_second_matrix_that_the_config_ties_is_a_duplicate(subtests, tmp_path):
    for model_type in TYPES:
        with subtests.test(model_type=model_type):
            place = Path(tempfile.mkdtemp(dir=tmp_path))
            report = auditor.audit(str(saved(place, model_type, head=True, tied=True)))
            found = [one for one in report.findings if isinstance(one, Duplicate)]
            assert [one.names for one in found] == [("lm_head.weight",)]


def test_a_config_alone_is_trusted(tmp_path):
    folder = saved(tmp_path, "t5", head=True, tied=False)
    whole = auditor.audit(str(folder)).expected
    alone = auditor.explain(str(folder)).expected
    assert (alone.parameters, alone.formula) == (whole.parameters, whole.formula)
    assert alone.formula.startswith("2*V*D")


def test_flan_t5_small_has_its_published_count(tmp_path):
    values = {"architectures": ["T5ForConditionalGeneration"], "model_type": "t5", "d_model": 512}
    values |= {"d_kv": 64, "d_ff": 1024, "num_layers": 8, "num_decoder_layers": 8, "num_heads": 6}
    values |= {"feed_forward_proj": "gated-gelu", "vocab_size": 32128, "tie_word_embeddings": False}
    (tmp_path / "config.json").write_bytes(text(values))
    assert auditor.explain(str(tmp_path)).expected.parameters == 76_961_152


def test_a_second_opinion_has_the_same_head(tmp_path):
    folder = saved(tmp_path, "t5", head=True, tied=False)
    assert auditor.audit(str(folder), oracle=True).verdict == "clean"


def test_a_head_is_separate_if_the_embedding_is_stored_under_a_tower_s_name(subtests, tmp_path):
    for tower in ["encoder", "decoder"]:
        with subtests.test(tower=tower):
            place = Path(tempfile.mkdtemp(dir=tmp_path))
            folder = saved(place, "t5", head=True, tied=False)
            weights = safetensors.load_file(folder / "model.safetensors")
            weights[f"{tower}.embed_tokens.weight"] = weights.pop("shared.weight")
            safetensors.save_file(weights, folder / "model.safetensors", {"format": "pt"})
            outcome = auditor.audit(str(folder))
            assert outcome.verdict == "clean"
            assert outcome.expected.parameters == loaded(folder, "t5")
