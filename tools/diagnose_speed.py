"""How long a diagnosis takes of DeepSeek-V3 and of BERT: `make diagnose-speed`.

Each fault is planted in the published headers (91,991 tensors in 163 shards, and 206 in one file).
The figure is processor time of the diagnosis alone, the shortest of three. The program ends with 1
where the cause is not the planted one, or takes longer than asked: 2 s and 0.1 s, and 1 s where
every type of the catalogue is compared. Words are faults.
"""

import gc
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path

from support import deepseek_v3

from auditor import diagnosis
from auditor.audit.model import examine_model
from auditor.audit.options import Options
from auditor.checkpoint.snapshot import Snapshot
from auditor.diagnosis.changes import with_names, with_tensors, with_values
from auditor.downloader import fetch
from auditor.report import Diagnosis

RUNS = 3
NO_CAUSE = "no cause"
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


def faults(snapshot: Snapshot, values: Mapping[str, int]) -> dict[str, tuple[str, Snapshot]]:
    """A planted cause and the checkpoint that has it, by the name of the fault."""
    found = {key: ("config-field", with_values(snapshot, {key: values[key]})) for key in values}
    found["module."] = ("wrapper-prefix", named(snapshot, lambda name: f"module.{name}"))
    return found


def seconds(spoilt: Snapshot) -> tuple[float, list[str]]:
    """The processor time of the diagnosis, and the causes that it names."""
    plain, spent, said = diagnosis.diagnose, [], []

    def timed(*args: object, **options: object) -> tuple[Diagnosis, ...]:
        since = time.process_time()
        found = plain(*args, **options)
        spent.append(time.process_time() - since)
        said[:] = [one.cause for one in found]
        return found

    diagnosis.diagnose = timed
    try:
        for _ in range(RUNS):
            examine_model(spoilt, Options(requested="speed", depth=3))
    finally:
        diagnosis.diagnose = plain
    return min(spent), said


def main() -> None:
    gc.disable()  # as the program does
    failed = False
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place, "DeepSeek-V3")
        deepseek_v3.write(folder)
        deepseek = fetch(str(folder))
        changed = {"vocab_size": 129_281, "num_hidden_layers": 60, "n_routed_experts": 128}
        planted = faults(deepseek, changed)
        planted["Meta's names"] = ("foreign-names", named(deepseek, as_meta))
        planted["some lost"] = (NO_CAUSE, without_some(deepseek))
        bert_base = fetch("bert-base-chinese", source="bundled")
        changed = {"vocab_size": 21_129, "num_hidden_layers": 11, "hidden_size": 1024}
        bert = faults(bert_base, changed)
        of_type = {"of DistilBERT": ("other-architecture", with_values(bert_base, DISTILBERT))}
        asked = (("DeepSeek-V3", planted, 2.0), ("BERT", bert, 0.1), ("BERT", of_type, 1.0))
        for model, some, most in asked:
            for fault, (cause, spoilt) in some.items():
                if sys.argv[1:] and fault not in sys.argv[1:]:
                    continue
                spent, said = seconds(spoilt)
                shown = ", ".join(said) or NO_CAUSE
                wrong = shown != cause or spent > most
                failed |= wrong
                print(f"{model:12} {fault:18} {spent:6.2f} s  {shown}{'  <--' if wrong else ''}")
    sys.exit(failed)


if __name__ == "__main__":
    main()
