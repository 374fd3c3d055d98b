"""Torch files: ties that share their bytes, copies of safetensors, pickles that would call."""

import io
import json
import tempfile
import warnings
from itertools import chain
from pathlib import Path

import pytest
from support.builders import safetensors_bytes
from support.checkpoints import config_bytes, expect, stored_by
from support.torch_files import lengths, pickled, tensor, zipped

from auditor import audit

CONFIG, ONE, TORCH = "config.json", "model.safetensors", "pytorch_model.bin"
TENSORS = {one.name: (one.dtype, one.shape) for one in stored_by(expect("BertForMaskedLM"))}
DECODER, EMBEDDING = "cls.predictions.decoder.weight", "bert.embeddings.word_embeddings.weight"


def with_tie(*, key: str | None) -> bytes:
    """The state dict with the decoder's weight, on a storage of its own or on that key's."""
    stored = list(TENSORS)
    items = {name: tensor(str(n), *TENSORS[name]) for n, name in enumerate(stored)}
    own = len(stored) if key is None else stored.index(key)
    items[DECODER] = tensor(str(own), *TENSORS[EMBEDDING])
    sizes = [*lengths(TENSORS), *([] if key else lengths({"": TENSORS[EMBEDDING]}))]
    return zipped(pickled(items), sizes)


def folder(path, **files):
    config = config_bytes(architectures=["BertForMaskedLM"])
    for name, content in {"config.json": config, **files}.items():
        (path / name).write_bytes(content)
    return str(path)


def test_a_tie_that_is_stored_as_the_same_bytes_is_tied(tmp_path):
    report = audit(folder(tmp_path, **{TORCH: with_tie(key=EMBEDDING)}))
    assert (report.verdict, report.residual) == ("clean", 0)
    pairs = (zip(one.names, one.tied_to, strict=True) for one in report.findings)
    tied = dict(chain.from_iterable(pairs))
    assert tied[DECODER] == EMBEDDING
    assert report.observed.parameters == report.expected.parameters


def test_a_tie_that_is_stored_twice_is_a_duplicate(tmp_path):
    report = audit(folder(tmp_path, **{TORCH: with_tie(key=None)}))
    assert (report.verdict, report.residual) == ("findings", 0)
    [found] = [one for one in report.findings if one.kind == "duplicate"]
    assert (found.names, found.of) == ((DECODER,), (EMBEDDING,))


def test_a_tie_in_a_copy_is_a_difference_only_if_it_is_stored_twice(subtests, tmp_path):
    for key in [EMBEDDING, None]:
        with subtests.test(key=key):
            place = Path(tempfile.mkdtemp(dir=tmp_path))
            files = {ONE: safetensors_bytes(TENSORS), TORCH: with_tie(key=key)}
            report = audit(folder(place, **files))
            found = [one.names for one in report.findings if one.kind == "copy-differs"]
            assert found == ([] if key else [(DECODER,)])


def test_what_the_pickle_would_call_is_an_error_whatever_else_is_right(tmp_path):
    items = {name: tensor(str(n), *one) for n, (name, one) in enumerate(TENSORS.items())}
    calls = {"x": b"cposix\nsystem\n(X\2\0\0\0idtR"}
    content = zipped(pickled(items | calls), lengths(TENSORS))
    report = audit(folder(tmp_path, **{TORCH: content}))
    [found] = [one for one in report.findings if one.kind == "unsafe"]
    assert (found.severity, found.names) == ("error", (TORCH,))
    [line] = found.imports
    assert line.startswith("posix.system('id') at byte ")
    assert "posix.system('id')" in found.reason
    assert report.residual == 0


def test_a_state_dict_below_a_key_is_not_one_for_a_loader_of_the_full_file(tmp_path):
    items = {name: tensor(str(n), *one) for n, (name, one) in enumerate(TENSORS.items())}
    content = pickled({"state_dict": pickled(items)[2:-1], "epoch": b"K\x03"})
    report = audit(folder(tmp_path, **{TORCH: zipped(content, lengths(TENSORS))}))
    assert report.notes[0].startswith("pytorch_model.bin: its state dict is under 'state_dict'")
    unexpected = {name for one in report.findings if one.kind == "unexpected" for name in one.names}
    assert unexpected == {f"(state_dict).{name}" for name in TENSORS}
    assert report.residual == 0


SIZES = {
    "BertForMaskedLM": {"hidden_size": 8, "num_hidden_layers": 2, "num_attention_heads": 2},
    "GPT2LMHeadModel": {
        "n_embd": 8,
        "n_layer": 2,
        "n_head": 2,
        "bos_token_id": 1,
        "eos_token_id": 2,
    },
    "T5ForConditionalGeneration": {"d_model": 8, "num_layers": 2, "d_ff": 8, "num_heads": 2},
}


@pytest.mark.oracle
def test_what_transformers_would_have_saved_closes(subtests, tmp_path):
    for name, legacy in [(name, name.startswith("GPT2")) for name in SIZES]:
        with subtests.test(name=name, legacy=legacy):
            place = Path(tempfile.mkdtemp(dir=tmp_path))
            import torch  # noqa: PLC0415 - the oracle's
            import transformers  # noqa: PLC0415 - likewise

            model_class = getattr(transformers, name)
            config = model_class.config_class(vocab_size=20, **SIZES[name])
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                held = model_class(config).state_dict()
            out = io.BytesIO()
            torch.save(held, out, _use_new_zipfile_serialization=not legacy)
            (place / CONFIG).write_text(
                json.dumps(config.to_diff_dict() | {"architectures": [name]})
            )
            (place / TORCH).write_bytes(out.getvalue())
            report = audit(str(place))
            assert (report.verdict, report.residual) == ("clean", 0)
            assert report.observed.tensors == len(held)
            unique = {one.data_ptr(): one.numel() for one in held.values()}
            assert report.observed.parameters == sum(unique.values())
