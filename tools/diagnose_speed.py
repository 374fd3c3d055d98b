"""How long a diagnosis takes of DeepSeek-V3 and of BERT: `make diagnose-speed`.

Each fault is planted in the published headers (91,991 tensors in 163 shards, and 206 in one file).
The figure is processor time of the diagnosis alone, the shortest of three. The program ends with 1
where the cause is not the planted one, or takes longer than asked: 2 s and 0.1 s. Words are faults.
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
from auditor.diagnosis.changes import with_names, with_values
from auditor.downloader import fetch
from auditor.report import Diagnosis

RUNS = 3
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
        asked = {"vocab_size": 129_281, "num_hidden_layers": 60, "n_routed_experts": 128}
        planted = faults(deepseek, asked)
        planted["Meta's names"] = ("foreign-names", named(deepseek, as_meta))
        bert = faults(
            fetch("bert-base-chinese", source="bundled"),
            {"vocab_size": 21_129, "num_hidden_layers": 11, "hidden_size": 1024},
        )
        for model, some, most in (("DeepSeek-V3", planted, 2.0), ("BERT", bert, 0.1)):
            for fault, (cause, spoilt) in some.items():
                if sys.argv[1:] and fault not in sys.argv[1:]:
                    continue
                spent, said = seconds(spoilt)
                wrong = said != [cause] or spent > most
                failed |= wrong
                shown = ", ".join(said) or "no cause"
                print(f"{model:12} {fault:18} {spent:6.2f} s  {shown}{'  <--' if wrong else ''}")
    sys.exit(failed)


if __name__ == "__main__":
    main()
