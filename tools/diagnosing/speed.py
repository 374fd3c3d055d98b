"""How long a diagnosis takes of DeepSeek-V3 and of BERT.

Each fault is planted in the published headers (91,991 tensors in 163 shards, and 206 in one file).
The figure is processor time of the diagnosis alone, the shortest of three. The program ends with 1
where the cause is not the planted one, or takes longer than asked: 2 s and 0.1 s, and 1 s where
every type of the catalogue is compared. A word is a fault.
"""

import gc
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path

from support import deepseek_v3
from support.changes import with_names, with_tensors, with_values

from auditor.audit.options import Options
from auditor.checkpoint.snapshot import Snapshot
from auditor.downloader.fetching import fetch
from diagnosing.tally import timed

RUNS = 3
NO_CAUSE = "no cause"
OF_DEEPSEEK = {"vocab_size": 129_281, "num_hidden_layers": 60, "n_routed_experts": 128}
OF_BERT = {"vocab_size": 21_129, "num_hidden_layers": 11, "hidden_size": 1024}
BESIDE = ("module.", "Meta's names", "some lost", "of DistilBERT")
FAULTS = tuple(dict.fromkeys((*OF_DEEPSEEK, *OF_BERT, *BESIDE)))
DISTILBERT = {"model_type": "distilbert", "architectures": ["DistilBertForMaskedLM"]}
META = {
    "model.layers.": "layers.",
    "self_attn": "attention",
    "mlp": "feed_forward",
    "gate_proj": "w1",
    "down_proj": "w2",
    "up_proj": "w3",
    "o_proj": "wo",
    "post_attention_layernorm": "ffn_norm",
    "input_layernorm": "attention_norm",
    "model.embed_tokens": "tok_embeddings",
    "lm_head": "output",
    "model.norm": "norm",
}


def named(snapshot: Snapshot, rename: Callable[[str], str]) -> Snapshot:
    names = [one.name for head in snapshot.headers for one in head.parsed.tensors]
    return with_names(snapshot, {name: rename(name) for name in names})


def without_some(snapshot: Snapshot) -> Snapshot:
    """Twelve tensors of experts are lost, in twelve layers."""
    lost = {f"model.layers.{at}.mlp.experts.{at * 7}.up_proj.weight": () for at in range(5, 53, 4)}
    return with_tensors(snapshot, lost)


def as_meta(name: str) -> str:
    for ours, theirs in META.items():
        name = name.replace(ours, theirs)
    return name


Planted = tuple[str, Callable[[], Snapshot]]  # a cause, and what makes the checkpoint that has it


def faults(snapshot: Snapshot, values: Mapping[str, int]) -> dict[str, Planted]:
    """Planted causes, by the name of the fault."""
    found: dict[str, Planted] = {
        key: ("config-field", partial(with_values, snapshot, {key: values[key]})) for key in values
    }
    found["module."] = ("wrapper-prefix", lambda: named(snapshot, lambda name: f"module.{name}"))
    return found


def seconds(spoilt: Snapshot) -> tuple[float, list[str]]:
    """The processor time of the diagnosis, and the causes that it names."""
    runs = [timed(spoilt, Options(requested="speed", depth=3)) for _ in range(RUNS)]
    return min(spent for *_, spent in runs), [one.cause for one in runs[0][0].diagnosis]


def planted_in(place: Path) -> Iterator[tuple[str, float, dict[str, Planted]]]:
    """A model, the seconds that are asked, and its faults."""
    deepseek_v3.write(place)
    deepseek = fetch(str(place))
    planted = faults(deepseek, OF_DEEPSEEK)
    planted["Meta's names"] = ("foreign-names", lambda: named(deepseek, as_meta))
    planted["some lost"] = (NO_CAUSE, lambda: without_some(deepseek))
    yield "DeepSeek-V3", 2.0, planted
    bert = fetch("bert-base-chinese", source="bundled")
    yield "BERT", 0.1, faults(bert, OF_BERT)
    of_distilbert = partial(with_values, bert, DISTILBERT)
    yield "BERT", 1.0, {"of DistilBERT": ("other-architecture", of_distilbert)}


def told(wanted: str) -> bool:
    """Print the times of one fault, and return whether all is as asked."""
    gc.disable()  # as the program does
    right = True
    with tempfile.TemporaryDirectory() as place:
        for model, most, planted in planted_in(Path(place, "DeepSeek-V3")):
            if wanted not in planted:
                continue
            cause, spoilt = planted[wanted]
            spent, said = seconds(spoilt())
            shown = ", ".join(said) or NO_CAUSE
            good = shown == cause and spent <= most
            right &= good
            print(f"{model:12} {wanted:18} {spent:6.2f} s  {shown}{'' if good else '  <--'}")
    return right


def alone(fault: str) -> int:
    """The exit code of this program for that fault."""
    command = (sys.executable, "-m", "diagnosing", "speed", fault)
    return subprocess.run(command, check=False).returncode  # noqa: S603 - this very program


def main() -> None:
    match sys.argv[1:]:
        case [wanted]:
            sys.exit(not told(wanted))
        case []:  # each in a process of its own, as an audit is
            sys.exit(max(map(alone, FAULTS)))
