"""Field libraries that write packed checkpoints and tokenizers, each in a process of its own.

Importing hqq warns, which is an error here, and transformers imports hqq wherever it is installed:
these libraries may stand in a folder that only those processes see, named by AUDITOR_PACKERS:

    pip install --no-deps --target FOLDER torchao==0.18.0 optimum-quanto==0.2.7 ninja==1.13.2 \
        hqq==0.2.8.post1 einops==0.8.2 termcolor==3.3.0 \
        auto-round==0.16.1 py-cpuinfo==9.0.0 datasets==5.2.0 dill==0.4.1 multiprocess==0.70.19 \
        xxhash==4.1.0 sentencepiece==0.2.3 tiktoken==0.14.0 mistral-common==1.13.1 \
        pydantic-extra-types==2.11.1 pycountry==26.2.16 pillow==13.0.0
"""

import os
import subprocess
import sys
from pathlib import Path

import pytest

_EAGER = {"TORCHDYNAMO_DISABLE": "1"}  # hqq compiles what it runs once: 100 s instead of 15
_PACKERS = os.environ.get("AUDITOR_PACKERS", "")

LLAMA = """
import json, sys, torch, transformers
from pathlib import Path
folder = Path(sys.argv[1])
transformers.utils.logging.disable_progress_bar()
def llama():
    return transformers.LlamaForCausalLM(transformers.LlamaConfig(
        hidden_size=64, intermediate_size=256, num_hidden_layers=2, num_attention_heads=4,
        num_key_value_heads=2, vocab_size=96, max_position_embeddings=32, dtype="bfloat16",
    )).to(torch.bfloat16)
llama().save_pretrained(folder / "plain")
"""


def write(script: str, folder: Path, package: str) -> None:
    """Runs the script over `LLAMA`; skips where the package, `optimum/quanto`, is not to be had."""
    run(LLAMA + script, folder, package)


def run(script: str, folder: Path, package: str) -> str:
    """What the script says, whose argument is the folder; skips likewise."""
    places = [_PACKERS, *sys.path]
    if not any(Path(place, package).is_dir() for place in places if place):
        pytest.skip(f"{package} is not installed")
    ran = subprocess.run(  # noqa: S603 - our own script, in this interpreter
        [sys.executable, "-W", "ignore", "-c", script, str(folder)],
        env=os.environ | {"PYTHONPATH": _PACKERS, "HF_HUB_OFFLINE": "1", **_EAGER},
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr[-2000:]
    return ran.stdout
