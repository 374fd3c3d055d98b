"""Weights under unusual names on the Hub take no request twice."""

import json

from support.builders import safetensors_bytes
from support.checkpoints import config_bytes, expect, stored_by

from auditor import audit

TABLE = {one.name: (one.dtype, one.shape) for one in stored_by(expect("BertModel"))}


def test_a_lora_takes_two_requests(at_hub):
    lora = {"unet.down_blocks.0.to_q.lora_A.weight": ("F16", (4, 320))}
    files = {"pytorch_lora_weights.safetensors": safetensors_bytes(lora), "README.md": b"x"}
    at_hub.add("o/m", files)
    outcome = audit("o/m")
    assert (outcome.observed.tensors, outcome.verdict) == (1, "unaudited")
    assert outcome.fetched.requests <= 5  # the listing, the file behind a redirect, two in vain


def test_no_text_is_requested_twice_for_a_base_name(at_hub):
    settings = {"bits": 4, "group_size": 4, "model_file_base_name": "q4"}
    files = {
        "config.json": config_bytes(architectures=["BertModel"]),
        "quantize_config.json": json.dumps(settings).encode(),
        "q4.safetensors": safetensors_bytes(TABLE),
    }
    at_hub.add("o/m", files)
    assert audit("o/m").observed.tensors == len(TABLE)
    texts = [record.path for record in at_hub.log if record.path.endswith(".json")]
    assert len(texts) == len(set(texts)) == 2
