"""Law 13: the model that `audit fix --apply` writes computes what was meant; its source stays."""

import json
import re

import pytest
import typer
from support.examples import one_in
from support.sibling_folders import SIBLINGS, Siblings, folder_of, logits_of
from support.spoiled_folders import (
    all_bytes,
    both,
    configured,
    edit,
    prefixed,
    renamed,
    saved,
    without,
)
from typer.testing import CliRunner

from auditor.audit.pipeline import audit
from auditor.cli.console import FailOn, exit_code
from auditor.cli.fix import fix
from auditor.cli.parameters import command_of

pytestmark = pytest.mark.oracle
pytest.importorskip("transformers")

ALL = tuple(f"--allow={name}" for name in ("tie-head", "labels", "layers", "experts", "class"))


def fixed(folder, *options):
    """The exit code and the output of `audit fix --apply`, which leaves the folder as it is."""
    app = typer.Typer()
    app.command()(command_of(fix))
    before = all_bytes(folder)
    done = CliRunner().invoke(app, [str(folder), "--apply", *options])
    assert done.exception is None or isinstance(done.exception, SystemExit), done.output
    assert all_bytes(folder) == before
    return done.exit_code, done.output


def of(folder):
    """The folder that a fix writes."""
    return folder.with_name(f"{folder.name}.fixed")


def left_alone(folder, *options):
    """The output of a fix that writes nothing, and whose exit code is that of the audit."""
    code, output = fixed(folder, *options)
    assert not of(folder).exists()
    assert code == exit_code(audit(str(folder)), FailOn.WARNING) == 1, output
    assert "audits clean" not in output
    return output


# --- configs of siblings -------------------------------------------------------------------------


@pytest.mark.parametrize("name", one_in(2, SIBLINGS))
def test_the_config_of_a_sibling_is_left_alone_or_mended_to_the_bit(name, tmp_path):
    pair = SIBLINGS[name]
    logits = folder_of(pair, tmp_path / "model")
    code, output = fixed(tmp_path / "model")
    if code == 0:
        assert logits_of(pair.family, of(tmp_path / "model")).equal(logits)
    else:
        assert (code, of(tmp_path / "model").exists()) == (1, False), output


@pytest.mark.parametrize(
    "name", ["a turbo Whisper", "a ViT of larger images"], ids=lambda name: name[2:]
)
def test_a_single_size_that_the_shapes_determine_is_mended(name, tmp_path):
    folder_of(SIBLINGS[name], tmp_path / "model")
    assert fixed(tmp_path / "model")[0] == 0


@pytest.mark.parametrize("name", ["a wider BERT", "a wider GPT-2", "a wider Gemma"])
def test_the_plan_for_a_config_of_another_size_has_what_the_files_determine(name, tmp_path):
    pair = SIBLINGS[name]
    folder_of(pair, tmp_path / "model")
    output = left_alone(tmp_path / "model", *ALL)
    assert "take the config.json of the model whose weights these are" in output
    for key in pair.declared.keys() & {"hidden_size", "n_embd", "intermediate_size"}:
        declared, held = pair.declared[key], pair.trained[key]
        said = rf"{key} (is )?{declared}(, the files hold| where the files hold| /) {held}\b"
        assert re.search(said, output), output
    assert not re.search(r"heads (is )?\d+(,| where| /)", output)


def test_labels_keep_their_names(tmp_path):
    trained = {**SIBLINGS["a wider ViT"].trained, "id2label": dict(enumerate("abcde"))}
    del trained["num_labels"]
    pair = Siblings("ViTForImageClassification", trained, {"id2label": dict(enumerate("abc"))})
    logits = folder_of(pair, tmp_path / "model")
    assert "--allow labels" in left_alone(tmp_path / "model")
    assert fixed(tmp_path / "model", "--allow=labels")[0] == 0
    config = json.loads((of(tmp_path / "model") / "config.json").read_text())
    assert [*config["id2label"].values()] == ["a", "b", "c", "LABEL_3", "LABEL_4"]
    assert config["label2id"] == {name: at for at, name in enumerate(config["id2label"].values())}
    assert logits_of(pair.family, of(tmp_path / "model")).equal(logits)


# --- what was lost -------------------------------------------------------------------------------

GPT2, BERT, LLAMA = "GPT2LMHeadModel", "BertForMaskedLM", "LlamaForCausalLM"
MISTRAL, NEOX, QWEN = "MistralForCausalLM", "GPTNeoXForCausalLM", "Qwen2ForCausalLM"


def without_layers(*numbers):
    """Tensors of some layers that were not saved."""

    def spoil(folder):
        from safetensors.torch import load_file  # noqa: PLC0415 - imports torch

        names = load_file(folder / "model.safetensors")
        parts = tuple(f".{number}." for number in numbers)
        without(*(name for name in names if any(part in name for part in parts)))(folder)

    return spoil


def with_two_equal_copies(folder):
    from safetensors.torch import load_file, save_file  # noqa: PLC0415 - imports torch

    configured(tie_word_embeddings=True)(folder)
    tensors = load_file(folder / "model.safetensors")
    tensors["lm_head.weight"] = tensors["model.embed_tokens.weight"].clone()
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})


@pytest.mark.parametrize("family", [LLAMA, MISTRAL, NEOX])
def test_a_head_that_was_lost_is_not_tied_without_permission(family, tmp_path):
    folder = saved(family, tmp_path / "model")
    without("lm_head.weight", "embed_out.weight")(folder)
    assert "--allow tie-head" in left_alone(folder)


@pytest.mark.parametrize(
    ("family", "spoil"),
    [
        (LLAMA, both(without_layers(1, 3, 5), without("model.norm.weight"))),
        (BERT, both(without_layers(1), without("bert.embeddings.LayerNorm.bias"))),
        (MISTRAL, both(prefixed("module."), without("module.model.norm.weight"))),
        (GPT2, both(without_layers(2), without("transformer.h.0.mlp.c_fc.bias"))),
        (NEOX, both(without("gpt_neox.final_layer_norm.bias"), without_layers(2))),
        (LLAMA, both(without("model.norm.weight"), configured(vocab_size=88))),
        (QWEN, without("model.layers.0.self_attn.q_proj.bias")),
    ],
    ids=[
        "half the layers and a norm", "a layer and a bias", "behind a prefix, without a norm",
        "a layer and a bias of GPT-2", "layers and a norm of NeoX",
        "a norm, and another vocabulary", "one bias",
    ],
)  # fmt: skip
def test_what_is_not_all_there_is_left_alone_whatever_is_allowed(family, spoil, tmp_path):
    folder = saved(family, tmp_path / "model")
    spoil(folder)
    left_alone(folder, *ALL)


def test_an_adapter_without_a_tensor_is_left_alone(tmp_path):
    from safetensors.torch import save_file  # noqa: PLC0415 - imports torch

    folder = tmp_path / "model"
    folder.mkdir()
    settings = {
        "peft_type": "LORA",
        "task_type": "CAUSAL_LM",
        "base_model_name_or_path": str(saved(LLAMA, tmp_path / "base")),
        "r": 4,
        "lora_alpha": 8,
        "target_modules": ["q_proj", "v_proj"],
    }
    (folder / "adapter_config.json").write_text(json.dumps(settings))
    save_file({}, folder / "adapter_model.safetensors", metadata={"format": "pt"})
    left_alone(folder, *ALL)


@pytest.mark.parametrize("spoil", [configured(tie_word_embeddings=True), with_two_equal_copies])
def test_a_tied_head_that_is_stored_stays_tied(spoil, tmp_path):
    folder = saved(LLAMA, tmp_path / "model")
    spoil(folder)
    assert "audit --values" in left_alone(folder)


def test_a_prefix_is_stripped_from_both_copies_of_a_tied_head(tmp_path):
    folder = saved(LLAMA, tmp_path / "model")
    with_two_equal_copies(folder)
    logits, config = logits_of(LLAMA, folder), (folder / "config.json").read_bytes()
    prefixed("module.")(folder)
    assert fixed(folder)[0] == 1  # the two copies are left
    assert logits_of(LLAMA, of(folder)).equal(logits)
    assert (of(folder) / "config.json").read_bytes() == config


# --- files beside the weights --------------------------------------------------------------------


def generation(**values):
    def spoil(folder):
        file = folder / "generation_config.json"
        if not file.exists():
            file.write_text("{}")
        edit(file, lambda config: config.update(values))

    return spoil


def tokenizer(**values):
    def spoil(folder):
        (folder / "tokenizer_config.json").write_text(json.dumps(values))

    return spoil


BESIDE = {
    "a generation config that cannot be saved": generation(do_sample=False, temperature=0.2),
    "an end beyond the vocabulary": generation(eos_token_id=500),
    "an end that is another": both(
        generation(eos_token_id=3),
        configured(eos_token_id=2),
        tokenizer(eos_token="</s>"),  # noqa: S106 - a token of text
    ),
    "a chat template that does not parse": tokenizer(chat_template="{% for m in messages %}"),
}


@pytest.mark.parametrize("name", BESIDE)
def test_a_fault_of_another_file_is_not_clean(name, tmp_path):
    folder = saved(LLAMA, tmp_path / "model")
    (folder / "README.md").write_text("# A model\n")
    BESIDE[name](folder)
    code = exit_code(audit(str(folder)), FailOn.WARNING)
    assert fixed(folder)[0] == code, name
    assert not of(folder).exists()


def test_names_are_fixed_although_a_fault_of_another_file_remains(tmp_path):
    folder = saved(LLAMA, tmp_path / "model")
    logits = logits_of(LLAMA, folder)
    both(renamed(lambda name: f"module.{name}"), generation(do_sample=False, temperature=0.2))(
        folder
    )
    code, output = fixed(folder)
    assert (code, exit_code(audit(str(of(folder))), FailOn.WARNING)) == (1, 1)
    assert "generation-config-invalid" in output
    assert logits_of(LLAMA, of(folder)).equal(logits)
