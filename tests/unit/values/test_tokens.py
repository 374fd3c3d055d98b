"""The ids of a tokenizer by its companion files, compared with the tokenizers library."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from auditor.companions.companion_files import CompanionFile, summary
from auditor.values.tokens import Tokens, known_tokens, unchecked_rows

UNKNOWN, PADDING = "[UNK]", "<pad>"
ADDED = ["<x>", PADDING, "<y>"]


def ids_of(tokens: Tokens) -> set[int]:
    return {number for number in range(-2, tokens.row_count + 2) if tokens.has(number)}


def vocabulary(ids, added=()) -> CompanionFile:
    """A tokenizer.json whose vocabulary has these ids, as the audit keeps it."""
    content = {
        "added_tokens": [{"id": number, "content": text} for number, text in added],
        "model": {"type": "BPE", "vocab": {f"t{number}": number for number in ids}, "merges": []},
    }
    return summary("tokenizer.json", json.dumps(content).encode())


def settings(**values: object) -> CompanionFile:
    return CompanionFile("tokenizer_config.json", json.dumps(values).encode())


def test_a_tokenizer_of_the_library_has_the_ids_of_its_vocabulary():
    models = pytest.importorskip("tokenizers").models
    from tokenizers import Tokenizer  # noqa: PLC0415 - after the check

    words = {word: number for number, word in enumerate([UNKNOWN, "a", "b", "c"])}
    scores = [(word, -1.0) for word in words]
    for model in (models.WordPiece(words, unk_token=UNKNOWN), models.Unigram(scores, 0)):
        tokenizer = Tokenizer(model)
        tokenizer.add_tokens(ADDED)
        tokens = known_tokens(
            [summary("tokenizer.json", tokenizer.to_str().encode()), settings(pad_token=PADDING)]
        )
        assert ids_of(tokens) == set(tokenizer.get_vocab(with_added_tokens=True).values())
        assert tokens.padding == {tokenizer.token_to_id(PADDING)}
        assert tokens.unchecked == ()


@given(ids=st.sets(st.integers(0, 20)), added=st.dictionaries(st.integers(0, 30), st.text("<ab>")))
def test_no_id_without_a_token_is_known_and_an_id_that_may_have_one_is_reported(ids, added):
    tokens = known_tokens([vocabulary(ids, added.items())])
    every = ids | set(added)
    assert ids_of(tokens) <= every
    assert bool(tokens.unchecked) or ids_of(tokens) == every


def test_the_settings_of_a_tokenizer_declare_added_and_padding_tokens():
    decoder = {"7": {"content": "<x>"}, "9": {"content": "<pad>"}, "x": {}, "8" * 30: {}}
    tokens = known_tokens([settings(added_tokens_decoder=decoder, pad_token={"content": "<pad>"})])
    assert (ids_of(tokens), tokens.padding) == ({7, 9}, {9})


def test_a_file_that_cannot_be_read_declares_no_token():
    for file in (
        CompanionFile("tokenizer.json", None, "it has 60,000,000 bytes"),
        CompanionFile("tokenizer.json", b"{"),
        CompanionFile("tokenizer_config.json", b"[" * 100_000),
        CompanionFile("tokenizer_config.json", b"\xff"),
    ):
        assert known_tokens([file]) == Tokens()


def test_a_vocabulary_of_a_million_entries_takes_no_memory_for_each():
    summarized = CompanionFile(
        "tokenizer.json",
        b'{"kind":"BPE","entries":1000000,"highest":[999999,"t"],"added":[],"unread":""}',
    )
    tokens = known_tokens([summarized])
    assert (tokens.complete_below, tokens.others) == (1_000_000, frozenset())


def test_rows_are_reported_as_unchecked_only_if_the_model_has_a_token_embedding():
    tokens = known_tokens(None)
    assert tokens.unchecked
    for name, is_needed in (("model.embed_tokens.weight", True), ("conv.weight", False)):
        assert bool(unchecked_rows(tokens, [name])) is is_needed
