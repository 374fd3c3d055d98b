"""Saves and pushes of transformers, PEFT and the Trainer, to the tests' Hub."""

import logging
import time
import warnings

import pytest
import torch
from huggingface_hub import constants

from auditor.errors import PublishError
from auditor.integrations import audited_saves

with warnings.catch_warnings():  # of peft, which transformers imports for its Trainer
    warnings.simplefilter("ignore")
    from peft import LoraConfig, get_peft_model
    from transformers import BertConfig, BertForSequenceClassification, Trainer, TrainingArguments

    from auditor.integrations import TrainerCallback

pytestmark = [pytest.mark.oracle, pytest.mark.filterwarnings("ignore")]  # of the libraries

MODEL, TOKEN = "org/my-model", "hf_write"
SIZES = {"hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2, "vocab_size": 11}


class TimeWithoutSleep:
    """The module time for huggingface_hub, which then does not wait between attempts."""

    def __getattr__(self, name):
        return (lambda _: None) if name == "sleep" else getattr(time, name)


@pytest.fixture(name="taking")
def a_hub_that_takes_commits(at_hub, monkeypatch):
    monkeypatch.setattr(constants, "HF_HUB_DISABLE_XET", True)
    monkeypatch.setattr("transformers.utils.hub._hf_api", None)  # it keeps an older Hub
    monkeypatch.setenv("HF_TOKEN", TOKEN)
    # It asks five times for the card of a repository that is not made yet.
    monkeypatch.setattr("huggingface_hub.utils._http.time", TimeWithoutSleep())
    at_hub.let_write(TOKEN)
    return at_hub


def a_model(*, sound=True):
    """A small model; one that is not sound declares a layer that it does not have."""
    model = BertForSequenceClassification(BertConfig(**SIZES, intermediate_size=8))
    model.config.num_hidden_layers += not sound
    return model


def an_adapter(folder, *, sound=True):
    """A LoRA adapter of a model in this folder; its config may declare another rank."""
    a_model().save_pretrained(folder)
    base = BertForSequenceClassification.from_pretrained(folder)
    adapter = get_peft_model(base, LoraConfig(r=2, target_modules=["query"]))
    adapter.peft_config["default"].r += not sound
    return adapter


def commits(hub):
    return sum(one.method == "POST" and "/commit/" in one.path for one in hub.log)


@pytest.mark.parametrize(
    ("kind", "way"),
    [("model", "push_to_hub"), ("model", "save_pretrained"), ("adapter", "push_to_hub")],
)
@pytest.mark.parametrize("sound", [True, False])
def test_a_push_is_refused_if_what_is_saved_has_an_error(taking, tmp_path, kind, way, sound):
    model = a_model(sound=sound) if kind == "model" else an_adapter(tmp_path / "base", sound=sound)
    pushes = {
        "push_to_hub": lambda: model.push_to_hub(MODEL),
        "save_pretrained": lambda: model.save_pretrained(
            tmp_path / "saved", push_to_hub=True, repo_id=MODEL
        ),
    }
    with audited_saves(model):
        if sound:
            pushes[way]()
        else:
            with pytest.raises(PublishError, match=r"^nothing was pushed: "):
                pushes[way]()
    assert commits(taking) == sound
    assert "save_pretrained" not in vars(model)


def test_a_save_without_a_push_is_kept_and_its_error_is_logged(tmp_path, caplog):
    model = a_model(sound=False)
    with audited_saves(model):
        model.save_pretrained(tmp_path)
    assert (tmp_path / "model.safetensors").exists()
    [record] = [one for one in caplog.records if one.name == "auditor.integrations"]
    assert record.levelno == logging.ERROR
    assert "num_hidden_layers" in record.message


def a_trainer(folder, *, sound, stop=False, push=True):
    rows = [{"input_ids": torch.tensor([1, 2]), "labels": torch.tensor(0)}] * 4
    args = TrainingArguments(
        str(folder),
        max_steps=2,
        save_steps=1,
        per_device_train_batch_size=1,
        report_to=[],
        use_cpu=True,
        push_to_hub=push,
        hub_model_id=MODEL,
        hub_token=TOKEN,
        hub_always_push=True,
    )
    trainer = Trainer(a_model(sound=sound), args, train_dataset=rows)
    trainer.add_callback(TrainerCallback(trainer, stop=stop))
    return trainer


@pytest.mark.parametrize("sound", [True, False])
def test_a_training_goes_on_and_pushes_sound_checkpoints_alone(taking, tmp_path, sound):
    trainer = a_trainer(tmp_path, sound=sound)
    assert trainer.train().global_step == 2
    if sound:
        trainer.push_to_hub()
    else:
        with pytest.raises(PublishError):
            trainer.push_to_hub()
    assert (commits(taking) > 0) == sound


def test_a_training_stops_at_an_error_if_that_is_requested(tmp_path):
    assert a_trainer(tmp_path, sound=False, stop=True, push=False).train().global_step == 1
