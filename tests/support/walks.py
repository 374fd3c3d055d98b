"""The walks of five people: the commands that each gives, and the screens that they print."""

import json
import os
import re
import shlex
from collections.abc import Callable, Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

import numpy as np
from support.checkpoints import LLAMA, stored_by
from support.hub import Hub
from support.running import run
from support.sharding import INDEX, shard_names
from support.spoiled_folders import configured, edit
from support.sweep_models import CONFIG, FAULTS, WEIGHTS, healthy
from support.value_files import write_model, write_numbers

from auditor.analytic import catalogue, read_config

LEAKS = ("HF_", "HUGGING", "HTTP_", "HTTPS_", "ALL_PROXY", "NO_PROXY", "FORCE_COLOR", "GITHUB_")
PLACE = "/walk"  # what stands for the folder of a walk
DECLARED = {
    "model_type": "llama",
    "architectures": ["LlamaForCausalLM"],
    "dtype": "float32",
    "tie_word_embeddings": False,
    "bos_token_id": 1,
    "eos_token_id": 2,
    **LLAMA,
}
UP = "model.layers.1.mlp.up_proj.weight"
Tensors = dict[str, np.ndarray]


class Event(NamedTuple):
    """A step that is not a command: what a screen says of it, and what it does on the Hub."""

    says: str
    do: Callable[[Hub], object]


class Walk(NamedTuple):
    """What a folder and the Hub have at first, and the steps."""

    prepare: Callable[[Path, Hub], object]
    steps: tuple[str | Event, ...]


def screens(walk: Walk) -> str:
    """Each command with its screen and its exit code, in a fresh folder and on a fresh Hub."""
    with TemporaryDirectory() as folder, Hub() as hub:
        place = Path(folder).resolve()
        walk.prepare(place, hub)
        shown = [_screen(step, place, hub) for step in walk.steps]
        text = "\n".join(shown).replace(str(place), PLACE).replace(hub.url, "http://hub")
    for varies, word in VARYING.items():
        text = re.sub(varies, word, text)
    return text


# What is another one at each run: a pattern, and the words that stand for it.
VARYING: Mapping[str, str] = {
    r"(?<=audited in )[\d:]+": "TIME",
    r"(?<=\"seconds\":)[\d.e-]+": "0",
    r"(?<=\"audited_on\":\")[\d-]+": "DATE",
    r"audit: \d+ models found\n": "",  # only if the listing takes ten seconds
}


def _screen(step: str | Event, place: Path, hub: Hub) -> str:
    if isinstance(step, Event):
        step.do(hub)
        return f"# {step.says}\n"
    piped, _, command = step.rpartition(" | ")
    stdin = (place / piped.removeprefix("cat ")).read_text("utf-8") if piped else None
    kept = {name: value for name, value in os.environ.items() if not name.startswith(LEAKS)}
    ours = {"HF_ENDPOINT": hub.url, "HF_HOME": str(place / "home"), "NO_COLOR": "1"}
    env = kept | ours | {"COLUMNS": "80"}
    done = run(*shlex.split(command)[1:], env=env, stdin=stdin, cwd=place)
    return f"$ {step}\n{done.stderr}{done.stdout}[exit code {done.returncode}]\n"


# --- small folders ----------------------------------------------------------------------------


def _tensors() -> Tensors:
    """The tensors of a small Llama, with numbers that no initializer leaves."""
    config = read_config(CONFIG, json.dumps(DECLARED).encode())
    expected = stored_by(catalogue.expect(config, "LlamaForCausalLM"))
    random = np.random.default_rng(0)
    return {
        one.name: random.laplace(float(len(one.shape) == 1), 0.04, one.shape).astype(np.float32)
        for one in expected
    }


def _sound(place: Path, _: Hub) -> None:
    write_model(place / "my-model", _tensors(), config=DECLARED)


def _compiled(place: Path, hub: Hub) -> None:
    _sound(place, hub)
    renamed = {f"_orig_mod.{name}": one for name, one in _tensors().items()}
    write_numbers(place / "my-model" / WEIGHTS, renamed)


def _six(place: Path, _: Hub) -> None:
    """Six folders, each with another fault."""
    tensors = _tensors()
    spoilt = {name: one.copy() for name, one in tensors.items()}
    spoilt[UP][0] = np.nan
    held: Mapping[str, Tensors] = {
        "compiled": {f"_orig_mod.{name}": one for name, one in tensors.items()},
        "no-tensor": {name: one for name, one in tensors.items() if name != UP},
        "truncated": tensors,
        "other-size": tensors,
        "nan": spoilt,
    }
    for name, stored in held.items():
        write_model(place / name, stored, config=DECLARED)
    weights = place / "truncated" / WEIGHTS
    weights.write_bytes(weights.read_bytes()[:-1000])
    configured(hidden_size=64, intermediate_size=96)(place / "other-size")
    write_model(place / "lost-shard", tensors, shards=3, config=DECLARED)
    size = sum(one.nbytes for one in tensors.values())
    edit(place / "lost-shard" / INDEX, lambda index: index["metadata"].update(total_size=size))
    (place / "lost-shard" / shard_names(3)[1]).unlink()


def _nights(_: Path, hub: Hub) -> None:
    for at, name in enumerate(("acme/bert", "acme/encoder", "acme/reader")):
        hub.add(name, FAULTS["unexpected"](at) if name == "acme/encoder" else healthy(at))


def _platform(place: Path, hub: Hub) -> None:
    hub.add("acme/bert", healthy(0))
    hub.add("acme/cut", FAULTS["bad-size"](1))
    hub.add("acme/gated", healthy(2), gated="auto")
    (place / "ids.txt").write_text("acme/bert\nacme/cut\nacme/gated\nacme/nowhere\n")
    _sound(place, hub)
    other = {**_tensors(), UP: _tensors()[UP] + np.float32(1)}
    write_model(place / "tuned", other, config={**DECLARED, "rope_theta": 5e5})


# --- the walks --------------------------------------------------------------------------------

_AS_MODEL = "--as BertModel --source bundled"
_LARGE = (
    "--as BertModel --set vocab_size=21128 --set hidden_size=1024 --set num_hidden_layers=24"
    " --set num_attention_heads=16 --set intermediate_size=4096 --set add_pooling_layer=false"
)
_ACCEPTED = "--kind unexpected --by 'A. Reviewer' --reason 'an adapter, on purpose'"

WALKS: Mapping[str, Walk] = {
    "student": Walk(
        lambda _, __: None,
        (
            f"audit explain bert-base-uncased --depth 1 {_AS_MODEL}",
            (
                "audit claim bert-base-uncased 109482240 --part embeddings=23837184"
                f" --part encoder=85054464 --part pooler=590592 {_AS_MODEL}"
            ),
            f"audit claim bert-base-uncased --part encoder=85645056 --part pooler=0 {_AS_MODEL}",
            f"audit explain bert {_LARGE} --kinds",
            (
                "audit claim bert 324472832 --part 'token embedding=21635072'"
                " --part 'segment embedding=2048' --part 'position embedding=524288'"
                f" --part 'embedding LayerNorm=2048' --part embeddings=22163456 {_LARGE}"
            ),
            (
                "audit claim bert --part 'one layer self-attention=4198400'"
                " --part encoder.layer.0.attention.output.LayerNorm=2048"
                " --part 'one layer feed-forward=8393728'"
                " --part encoder.layer.0.output.LayerNorm=2048"
                f" --part 'one layer=12596224' {_LARGE}"
            ),
            (
                "audit claim bert-base-chinese 102290312"
                " 'V*D + L*D + 4*D + N*(12*D^2 + 13*D) + V + D^2 + 3*D' --part embeddings=16622592"
                " --part encoder=85054464 --part 'masked-LM head=613256' --source bundled"
            ),
            (
                "audit claim bert-base-chinese 75641856 '72.1 MB' --part attention=2359296"
                f" --part 'feed forward=56623104' --part LayerNorm=38400 {_AS_MODEL}"
            ),
            (
                "audit claim bert-base-chinese 101677056 --part attention=28348416"
                " --part 'feed forward=56669184' --part 'embeddings=V*D + L*D + 2*D'"
                f" --set add_pooling_layer=false {_AS_MODEL}"
            ),
        ),
    ),
    "practitioner": Walk(
        _six,
        (
            "audit compiled no-tensor lost-shard truncated other-size nan --values",
            "audit compiled",
            "audit fix compiled",
            "audit fix compiled --apply",
            "audit compiled.fixed",
            "audit compiled --quiet",
        ),
    ),
    "publisher": Walk(
        _compiled,
        (
            "audit my-model",
            "audit push my-model acme/my-model --dry-run",
            "audit fix my-model --apply",
            "audit push my-model.fixed acme/my-model --dry-run",
            "audit my-model.fixed --format badge",
            "audit attest my-model.fixed -o statement.json",
            "audit verify statement.json my-model.fixed",
        ),
    ),
    "reviewer": Walk(
        _nights,
        (
            "audit sweep --author acme --night 2026-11-20 --processes 1",
            "audit report",
            Event(
                "acme pushes a tensor less to acme/bert",
                lambda hub: hub.push("acme/bert", FAULTS["missing"](0), authors=["alice"]),
            ),
            "audit sweep --author acme --night 2026-11-21 --processes 1",
            "audit report",
            f"audit accept . acme/encoder {_ACCEPTED} --until 2999-12-31",
            f"audit accept . acme/bert {_ACCEPTED} --until 2999-12-31",
            "audit report --baseline baseline.toml",
        ),
    ),
    "engineer": Walk(
        _platform,
        (
            "audit memory my-model --context 64",
            "audit memory acme/bert --format json",
            "cat ids.txt | audit - --quiet",
            "cat ids.txt | audit - --format jsonl --depth 0",
            "audit acme/bert --quiet",
            "audit doctor my-model",
            "audit diff my-model tuned",
        ),
    ),
}
