"""The tokenizers of a pipeline: no token has an id beyond the embedding of its text encoder."""

import tempfile
from pathlib import Path

from support.pipelines import BERT, CLIP, encoders, text, written

from auditor import audit

CLIP_TOKENS = {f"t{number}": number for number in range(CLIP["vocab_size"])}
BERT_TOKENS = [f"t{number}" for number in range(BERT["vocab_size"])]


def tokenizers(*, clip=CLIP_TOKENS, bert=BERT_TOKENS, config=b"{}"):
    return {
        "tokenizer": {"vocab.json": text(clip), "merges.txt": b"", "tokenizer_config.json": config},
        "tokenizer_2": {"vocab.txt": "\n".join(bert).encode()},
    }


ADDED = {"added_tokens_decoder": {str(len(CLIP_TOKENS)): {"content": "<more>"}}}
CASES = {
    "as many ids as rows": (tokenizers(), []),
    "fewer ids than rows": (tokenizers(clip={"t0": 0}, bert=BERT_TOKENS[:2]), []),
    "no tokenizer": ({}, []),
    "not JSON": (tokenizers(config=b"{"), []),
    "a vocabulary with more": (
        tokenizers(clip={**CLIP_TOKENS, "more": len(CLIP_TOKENS)}),
        ["tokenizer/vocab.json"],
    ),
    "an added token": (tokenizers(config=text(ADDED)), ["tokenizer/tokenizer_config.json"]),
    "the second one with more": (
        tokenizers(bert=[*BERT_TOKENS, "more"]),
        ["tokenizer_2/vocab.txt"],
    ),
    "the first one's in the second": (
        {"tokenizer": {"vocab.txt": "\n".join([*BERT_TOKENS, *"abcdefgh"]).encode()}},
        ["tokenizer/vocab.txt"],
    ),
}


def test_ids_are_compared_with_the_rows_of_the_encoder(subtests, tmp_path):
    for name, (folders, files) in CASES.items():
        with subtests.test(name=name):
            place = Path(tempfile.mkdtemp(dir=tmp_path))
            outcome = audit(written(place, encoders(**folders)))
            assert [(one.kind, one.file) for one in outcome.findings] == [
                ("token-beyond-embedding", file) for file in files
            ]


def test_a_pipeline_on_the_hub_is_compared_too(at_hub):
    folders, [file] = CASES["the second one with more"]
    at_hub.add("org/two", encoders(**folders))
    [finding] = audit("org/two").findings
    assert (finding.file, finding.rows) == (file, len(BERT_TOKENS))


def test_an_unusable_file_is_named(tmp_path):
    folders, _ = CASES["not JSON"]
    outcome = audit(written(tmp_path, encoders(**folders)))
    assert any(line.startswith("tokenizer: tokenizer_config.json") for line in outcome.unchecked)
