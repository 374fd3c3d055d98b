"""The highest id of a tokenizer by its files alone, held to what the tokenizer itself says."""

import base64
import json
import tempfile
from pathlib import Path

import pytest

pytest.importorskip("transformers", reason="the judge of tokenizers")
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Tokenizer, models, pre_tokenizers, trainers
from transformers import AutoTokenizer, PreTrainedTokenizerFast

from auditor.bounded.json_text import JsonFile
from auditor.companions import vocabulary_files
from auditor.companions.companion_files import summary
from auditor.companions.vocabulary import Token, Vocabulary, summary_json, vocabulary_of
from auditor.errors import CheckpointError

TEXT = ["the quick brown fox jumps over the lazy dog", 'a "quoted": 7, word } ] \\ 日本語'] * 20
SPECIAL = ["<pad>", "<unk>", "</s>"]


def trained(kind, tokens=("<x>", "<y>")):
    """A tokenizer of that kind, with some tokens added to it."""
    model, trainer, splitter = {
        "BPE": (models.BPE, trainers.BpeTrainer, pre_tokenizers.Whitespace()),
        "byte-level BPE": (models.BPE, trainers.BpeTrainer, pre_tokenizers.ByteLevel()),
        "WordPiece": (models.WordPiece, trainers.WordPieceTrainer, pre_tokenizers.Whitespace()),
        "WordLevel": (models.WordLevel, trainers.WordLevelTrainer, pre_tokenizers.Whitespace()),
        "Unigram": (models.Unigram, trainers.UnigramTrainer, pre_tokenizers.Metaspace()),
    }[kind]
    made = Tokenizer(model() if kind == "Unigram" else model(unk_token="<unk>"))  # noqa: S106
    made.pre_tokenizer = splitter
    more = {"unk_token": "<unk>"} if kind == "Unigram" else {}
    made.train_from_iterator(TEXT, trainer(vocab_size=80, special_tokens=SPECIAL, **more))
    fast = PreTrainedTokenizerFast(tokenizer_object=made, unk_token="<unk>")  # noqa: S106
    fast.add_tokens(list(tokens))
    return fast


def test_a_tokenizer_of_the_library_has_the_highest_id_of_auto_tokenizer(subtests, tmp_path):
    for kind in ["BPE", "byte-level BPE", "WordPiece", "WordLevel", "Unigram"]:
        for tokens in [(), ("<x>", "<y>")]:
            with subtests.test(tokens=tokens, kind=kind):
                place = Path(tempfile.mkdtemp(dir=tmp_path))
                trained(kind, tokens).save_pretrained(place)
                known = AutoTokenizer.from_pretrained(place).get_vocab()
                found = vocabulary_files.read_tokenizer((place / "tokenizer.json").read_bytes())
                assert found.top is not None
                assert (found.top.id, found.unread) == (max(known.values()), "")
                assert known[found.top.text] == found.top.id


def test_the_beginning_of_a_tokenizer_yields_no_wrong_id(subtests, tmp_path):
    for kind in ["BPE", "WordPiece", "Unigram"]:
        with subtests.test(kind=kind):
            place = Path(tempfile.mkdtemp(dir=tmp_path))
            trained(kind).save_pretrained(place)
            content = (place / "tokenizer.json").read_bytes()
            highest = max(AutoTokenizer.from_pretrained(place).get_vocab().values())
            for length in range(0, len(content), 17):
                found = vocabulary_files.read_tokenizer(
                    content[:length], content[-4096:], is_complete=False
                )
                assert found.unread or (found.top and found.top.id == highest)
                assert found.top is None or found.top.id <= highest


def test_the_end_of_a_long_file_has_the_last_entry_of_a_word_piece(tmp_path):
    trained("WordPiece", ()).save_pretrained(tmp_path)
    content = (tmp_path / "tokenizer.json").read_bytes()
    start = content[: content.index(b'"vocab"') + 40]
    highest = max(AutoTokenizer.from_pretrained(tmp_path).get_vocab().values())
    found = vocabulary_files.read_tokenizer(start, content[-200:], is_complete=False)
    assert found.highest is not None
    assert found.highest.id == highest
    assert found.unread == "all of its vocabulary but the last entry"


def pieces(*texts):
    """A ModelProto of sentencepiece: a piece for each text, then settings of the trainer."""
    each = b"".join(
        b"\x0a" + bytes([len(text) + 7, 0x0A, len(text)]) + text + b"\x15\x00\x00\x80\xbf"
        for text in texts
    )
    return each + b"\x12\x03\x0a\x01a"


def test_sentencepiece_counts_its_pieces():
    found = vocabulary_files.sentencepiece(pieces(b"<unk>", b"<s>", b"\xe2\x96\x81a"))
    assert (found.highest, found.entries) == (Token(2, "▁a"), 3)


def test_tiktoken_has_a_rank_on_each_line():
    content = b"".join(base64.b64encode(bytes([n])) + b" %d\n" % n for n in range(256))
    found = vocabulary_files.tiktoken(content)
    assert (found.highest, found.entries) == (Token(255, ""), 256)
    assert vocabulary_files.sentencepiece(content) == found  # which some call tokenizer.model


def test_tekken_stores_its_number_of_ids_first():
    content = json.dumps({"config": {"default_vocab_size": 131_072}, "vocab": [{}]}).encode()
    assert vocabulary_files.tekken(content[:60]).highest == Token(131_071, "")


def test_vocab_json_added_tokens_and_vocab_txt():
    assert vocabulary_files.token_object(b'{"a": 3, "b": 7, ": 9,": 5}').highest == Token(7, "b")
    assert vocabulary_files.added_object(b'{"<x>": 9, "<w>": 8}').added == (
        Token(8, "<w>"),
        Token(9, "<x>"),
    )
    assert vocabulary_files.token_lines(b"[PAD]\n[UNK]\na\n").highest == Token(2, "a")
    assert vocabulary_files.token_lines(b"[PAD]\r\na").highest == Token(1, "a")


def test_special_tokens_of_a_plain_vocabulary_are_kept_by_name():
    written = b'{"</s>": 2, "a": 3, "\\"<x>": 4, "[MASK]": 5, "<a b>": 6, "<|endoftext|>": 7}'
    found = vocabulary_files.token_object(written)
    assert found.special == (Token(2, "</s>"), Token(5, "[MASK]"), Token(7, "<|endoftext|>"))
    assert vocabulary_files.sentencepiece(pieces(b"a", b"</s>")).special == (Token(1, "</s>"),)


HOSTILE = {
    "deep": b'{"added_tokens": ' + b"[" * 100_000,
    "no object": b"[]",
    "digits": b'{"added_tokens": [{"id": ' + b"9" * 4000 + b', "content": "x"}]}',
    "digits of the vocabulary": b'{"added_tokens": [], "model": {"vocab": {"a": ' + b"9" * 4000,
    "no id": b'{"added_tokens": [{"content": "x"}]}',
    "rubbish": b"\x00\xff" * 1000,
}


def test_a_hostile_tokenizer_json_is_not_read(subtests):
    for name, content in HOSTILE.items():
        with subtests.test(name=name):
            found = vocabulary_files.read_tokenizer(content)
            assert (found.top, bool(found.unread)) == (None, True)


def test_a_hostile_vocabulary_is_refused(subtests):
    for reader, content in [
        (vocabulary_files.sentencepiece, b"\x0a\xff\xff\xff\xff\x0f"),
        (vocabulary_files.sentencepiece, b"\x0a" + b"\xff" * 20),
        (vocabulary_files.sentencepiece, b"\x0f" * 20),
        (vocabulary_files.sentencepiece, b""),
        (vocabulary_files.tiktoken, b"YQ== " + b"9" * 4000 + b"\n"),
        (vocabulary_files.tekken, b'{"config": {}}'),
        (vocabulary_files.token_object, b'{"a": {"b": 1}}'),
        (vocabulary_files.token_lines, b""),
    ]:
        with subtests.test(reader=reader), pytest.raises(CheckpointError, match=r"\w"):
            reader(content)


def test_an_id_of_two_to_the_63_is_an_id():
    content = b'{"added_tokens": [{"id": 9223372036854775808, "content": "x"}]}'
    assert vocabulary_files.read_tokenizer(content).top == Token(2**63, "x")


TOKENS = st.builds(Token, st.integers(0, 2**63), st.text(max_size=5))


@given(
    st.builds(
        Vocabulary,
        st.text(max_size=5),
        st.none() | TOKENS,
        st.none() | st.integers(0, 9),
        st.lists(TOKENS, max_size=3).map(tuple),
        st.text(max_size=5),
        st.lists(TOKENS, max_size=3).map(tuple),
    )
)
def test_what_a_snapshot_keeps_of_a_vocabulary_reads_back(vocabulary):
    assert vocabulary_of(JsonFile("tokenizer.json", summary_json(vocabulary))) == vocabulary


@given(st.binary(max_size=200) | st.text('{}[]",:0123456789ab\\', max_size=60).map(str.encode))
def test_any_bytes_end_in_a_summary_or_in_a_reason(content):
    for name in ("tokenizer.json", "tokenizer.model", "tekken.json", "vocab.json", "x.tiktoken"):
        found = summary(name, content)
        assert (found.content is None) == bool(found.unread)


def test_the_beginning_of_a_document_is_read_up_to_its_last_complete_token():
    start = b'{"x": "", "added_tokens": [{"id": 5, "content": "a, ]"}, {"id": 6, "content": "b'
    cut = vocabulary_files.read_tokenizer(start, is_complete=False)
    assert (cut.added, cut.highest) == ((Token(5, "a, ]"),), None)
    assert cut.unread == "the rest of its added tokens and its vocabulary"


def test_a_string_without_an_end_is_searched_once_and_not_from_each_quote_in_it(subtests):
    """To search 10 MB from each quote would take hours."""
    for opened in [b"[", b"{", b'{"a": [']:
        with subtests.test(opened=opened):
            content = opened + b'"' + rb"\"" * 5_000_000
            for name in ("tokenizer.json", "tekken.json", "vocab.json", "added_tokens.json"):
                assert (
                    summary(name, content, is_complete=False).content is None
                    or name == "tokenizer.json"
                )


def test_a_wanted_token_is_looked_up_in_lines_and_pieces():
    lines = vocabulary_files.token_lines(b"[PAD]\nthe\n##e\n", ["the", "absent"])
    assert lines.special == (Token(1, "the"),)
    pieces = [b"p%d" % at for at in range(20)]
    fields = (bytes([len(one) + 2, 10, len(one)]) + one for one in pieces)
    proto = b"\n" + b"\n".join(fields)
    assert vocabulary_files.sentencepiece(proto, ["p19", "p"]).special == (Token(19, "p19"),)
    assert vocabulary_files.sentencepiece(proto).special == ()
