"""The highest id of tokenizers that have no tokenizer.json: what the owner of the format says."""

import json
from collections.abc import Mapping
from itertools import product
from pathlib import Path

import pytest

pytest.importorskip("transformers", reason="the judge of tokenizers")
import transformers
from support.layouts import packers
from tokenizers import Tokenizer, models, pre_tokenizers, trainers
from transformers import AutoTokenizer

from auditor.companions.companion_files import companions_of, is_vocabulary, summary
from auditor.companions.reading import loaded_settings, loaded_tokens, named_tokens
from auditor.companions.vocabulary import Token, Vocabulary, vocabulary_of

TEXT = ["the quick brown fox jumps over the lazy dog", 'a "quoted": 7, word } ] \\ 日本語'] * 20


def vocabularies(folder: Path) -> dict[str, Vocabulary]:
    """Whatever of a folder would be read of a model's tokenizer."""
    names = companions_of({path.name for path in folder.iterdir()})
    wanted = named_tokens(settings(folder))
    read = [
        summary(name, (folder / name).read_bytes(), tokens=wanted)
        for name in names
        if is_vocabulary(name)
    ]
    assert [one.unread for one in read] == [""] * len(read)
    return {one.name: vocabulary_of(one) for one in read}


def settings(folder: Path) -> Mapping[str, object]:
    names = ("tokenizer_config.json", "special_tokens_map.json")
    texts = [(folder / name).read_text() if (folder / name).is_file() else "{}" for name in names]
    return loaded_settings(*map(json.loads, texts))


def tokens(folder: Path) -> dict[int, str]:
    """Every token that the files name, by its id."""
    each = vocabularies(folder)
    added = [token for _, token in loaded_tokens(settings(folder), each)]
    return dict([*added, *(one.highest for one in each.values() if one.highest)])


def known(folder: Path) -> dict[str, int]:
    return AutoTokenizer.from_pretrained(folder).get_vocab()


def is_held_to(judge: dict[str, int], folder: Path) -> None:
    found = tokens(folder)
    assert max(found) == max(judge.values())
    assert {at: judge[text] for at, text in found.items()} == {at: at for at in found}


# --- files that transformers reads itself -------------------------------------------------------


def byte_level(folder: Path) -> None:
    byte_level_model().model.save(str(folder))


def tokenizer_json(folder: Path) -> None:
    byte_level_model().save(str(folder / "tokenizer.json"))


def byte_level_model() -> Tokenizer:
    model = Tokenizer(models.BPE())
    model.pre_tokenizer = pre_tokenizers.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    special = ["<|endoftext|>"]
    trainer = trainers.BpeTrainer(vocab_size=300, special_tokens=special, initial_alphabet=alphabet)
    model.train_from_iterator(TEXT, trainer)
    return model


def word_piece(folder: Path) -> None:
    model = Tokenizer(models.WordPiece(unk_token="[UNK]"))  # noqa: S106
    model.pre_tokenizer = pre_tokenizers.Whitespace()
    special = [f"[{name}]" for name in ("PAD", "UNK", "CLS", "SEP", "MASK")]
    model.train_from_iterator(
        TEXT, trainers.WordPieceTrainer(vocab_size=90, special_tokens=special)
    )
    model.model.save(str(folder))


@pytest.mark.parametrize(
    ("name", "write", "files"),
    [
        ("GPT2Tokenizer", byte_level, {"vocab.json", "merges.txt"}),
        ("BertTokenizer", word_piece, {"vocab.txt"}),
    ],
)
@pytest.mark.parametrize("added", [[], ["<x>", "<y>"]])
def test_the_files_of_slow_tokenizers_have_their_highest_id(name, write, files, added, tmp_path):
    write(tmp_path)
    assert {path.name for path in tmp_path.iterdir()} == files
    start = len(known_of(tmp_path, name))
    if added:
        ids = {text: start + at for at, text in enumerate(added)}
        (tmp_path / "added_tokens.json").write_text(json.dumps(ids))
    is_held_to(known_of(tmp_path, name), tmp_path)


def known_of(folder: Path, name: str) -> dict[str, int]:
    (folder / "tokenizer_config.json").write_text(json.dumps({"tokenizer_class": name}))
    return known(folder)


@pytest.mark.parametrize("name", ["GPT2Tokenizer", "BertTokenizer"])
def test_what_transformers_writes_of_them_has_it_as_well(name, tmp_path):
    {"GPT2Tokenizer": byte_level, "BertTokenizer": word_piece}[name](tmp_path)
    known_of(tmp_path, name)
    made = AutoTokenizer.from_pretrained(tmp_path)
    made.add_tokens(["<x>"])
    made.add_special_tokens({"extra_special_tokens": ["<|im_end|>"]})
    made.save_pretrained(tmp_path / "again")
    is_held_to(known(tmp_path / "again"), tmp_path / "again")


DECODER = {"0": "<|endoftext|>", "310": "<q>", "400": "<y>"}


@pytest.mark.parametrize(
    ("tokenizer_class", "with_json"),
    [("PreTrainedTokenizerFast", True), ("GPT2Tokenizer", True), ("GPT2Tokenizer", False)],
)
def test_added_tokens_have_the_ids_that_loading_gives_them(tokenizer_class, with_json, tmp_path):
    decoders = (None, {}, {"0": "<|endoftext|>"}, {"1": "!"}, DECODER)
    files = (None, {"<x>": 320}, {"<|endoftext|>": 9}, {"<z>": 320, "<x>": 310})
    for number, (decoder, file) in enumerate(product(decoders, files)):
        place = tmp_path / str(number)
        place.mkdir()
        (tokenizer_json if with_json else byte_level)(place)
        config = {"tokenizer_class": tokenizer_class}
        if decoder is not None:
            each = {at: {"content": text, "special": True} for at, text in decoder.items()}
            config["added_tokens_decoder"] = each
        (place / "tokenizer_config.json").write_text(json.dumps(config))
        if file is not None:
            (place / "added_tokens.json").write_text(json.dumps(file))
        is_held_to(known(place), place)
        assert max(tokens(place)) == len(AutoTokenizer.from_pretrained(place)) - 1


@pytest.mark.parametrize("unigram", [False, True])
@pytest.mark.parametrize(
    "named",
    [
        {"eos_token": "<new>"},
        {"eos_token": "the", "pad_token": "<pad>"},
        {"pad_token": "<pad>", "unk_token": {"__type": "AddedToken", "content": "<e>"}},
        {"eos_token": "<e>", "extra_special_tokens": ["<a>", "fox", "<b>"]},
    ],
)
def test_a_special_token_that_the_vocabulary_lacks_gets_the_next_id(named, unigram, tmp_path):
    if unigram:
        pieces = [("<unk>", 0.0), ("the", -1.0), ("fox", -2.0), *((c, -9.0) for c in "abcdefgh")]
        Tokenizer(models.Unigram(pieces, unk_id=0)).save(str(tmp_path / "tokenizer.json"))
    else:
        tokenizer_json(tmp_path)
    config = {"tokenizer_class": "PreTrainedTokenizerFast", **named}
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(config))
    judge = known(tmp_path)
    is_held_to(judge, tmp_path)
    [read] = vocabularies(tmp_path).values()
    assert all(judge[token.text] == token.id for token in read.special)
    assert not set(read.absent) & {token.text for token in read.special}


@pytest.mark.parametrize(
    ("config", "end"),
    [({}, "fox"), ({"eos_token": "the"}, "fox"), ({"added_tokens_decoder": {}}, "the")],
)
def test_an_older_map_of_special_tokens_is_read_unless_the_config_has_added_ones(
    config, end, tmp_path
):
    tokenizer_json(tmp_path)
    config = {"tokenizer_class": "PreTrainedTokenizerFast", "eos_token": "the"} | config
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(config))
    (tmp_path / "special_tokens_map.json").write_text('{"eos_token": "fox", "pad_token": "<p>"}')
    assert (
        AutoTokenizer.from_pretrained(tmp_path).eos_token == settings(tmp_path)["eos_token"] == end
    )
    is_held_to(known(tmp_path), tmp_path)


def test_bytes_have_their_added_tokens_and_no_vocabulary(tmp_path):
    transformers.ByT5Tokenizer().save_pretrained(tmp_path)
    is_held_to(known(tmp_path), tmp_path)


def test_characters_of_unicode_have_special_tokens_alone(tmp_path):
    made = transformers.CanineTokenizer()
    made.save_pretrained(tmp_path)
    assert vocabularies(tmp_path) == {}
    found = tokens(tmp_path)
    assert {at: made.convert_tokens_to_ids(text) for at, text in found.items()} == {
        at: at for at in found
    }
    assert {made.cls_token_id, made.sep_token_id, made.mask_token_id} <= found.keys()


def test_letters_of_speech_are_a_vocabulary(tmp_path):
    letters = ["<pad>", "<s>", "</s>", "<unk>", "|", *"abcdefgh"]
    (tmp_path / "vocab.json").write_text(json.dumps({text: at for at, text in enumerate(letters)}))
    transformers.Wav2Vec2CTCTokenizer(tmp_path / "vocab.json").save_pretrained(tmp_path)
    is_held_to(known(tmp_path), tmp_path)


# --- formats of other libraries -----------------------------------------------------------------

SENTENCEPIECE = """
import io, json, sys, sentencepiece
from pathlib import Path
text = ["the quick brown fox jumps over the lazy dog", 'a "quoted": 7, word } ]'] * 20
found = {}
for kind in ("bpe", "unigram", "char", "word"):
    place = Path(sys.argv[1], kind, "tokenizer.model")
    place.parent.mkdir()
    with place.open("wb") as file:
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=iter(text), model_writer=file, model_type=kind, minloglevel=2,
            user_defined_symbols=["<x>"], byte_fallback=kind == "bpe", hard_vocab_limit=False,
            vocab_size=320 if kind == "bpe" else 40,
        )
    made = sentencepiece.SentencePieceProcessor(model_file=str(place))
    found[kind] = {made.id_to_piece(at): at for at in range(made.get_piece_size())}
print(json.dumps(found))
"""
TIKTOKEN = """
import base64, json, sys, tiktoken
from pathlib import Path
from tiktoken.load import load_tiktoken_bpe
ranks = {bytes([at]): at for at in range(256)}
ranks |= {b"the": 256, b" the": 257, b"quick": 258}
for name in ("qwen.tiktoken", "tokenizer.model", "tiktoken.model"):
    place = Path(sys.argv[1], name.partition(".")[0] + "-of")
    place.mkdir(exist_ok=True)
    lines = (base64.b64encode(text) + b" %d\\n" % rank for text, rank in ranks.items())
    (place / name).write_bytes(b"".join(lines))
    read = load_tiktoken_bpe(str(place / name))
    made = tiktoken.Encoding("it", pat_str=".", mergeable_ranks=read, special_tokens={})
    print(json.dumps([str(place), made.max_token_value, made.n_vocab]))
"""
TEKKEN = """
import base64, json, sys
from pathlib import Path
from mistral_common.tokens.tokenizers.tekken import Tekkenizer
def ranked(at):
    text = bytes([at]) if at < 256 else b"t%d" % at
    return {"rank": at, "token_bytes": base64.b64encode(text).decode(), "token_str": None}
config = {
    "pattern": ".", "num_vocab_tokens": 400, "default_vocab_size": 320,
    "default_num_special_tokens": 20, "version": "v7",
}
special = [
    {"rank": at, "token_str": text, "is_control": True}
    for at, text in enumerate(["<unk>", "<s>", "</s>"])
]
said = {"config": config, "vocab": [ranked(at) for at in range(400)], "special_tokens": special}
place = Path(sys.argv[1], "tekken.json")
place.write_text(json.dumps(said))
print(json.dumps(Tekkenizer.from_file(place).n_words))
"""


def test_a_model_that_sentencepiece_trained_has_its_last_piece(tmp_path):
    found = json.loads(packers.run(SENTENCEPIECE, tmp_path, "sentencepiece"))
    assert list(found) == ["bpe", "unigram", "char", "word"]
    for kind, judge in found.items():
        is_held_to(judge, tmp_path / kind)
        assert vocabularies(tmp_path / kind)["tokenizer.model"].entries == len(judge)
        text, at = sorted(judge.items())[len(judge) // 2]
        config = {"eos_token": text}
        (tmp_path / kind / "tokenizer_config.json").write_text(json.dumps(config))
        assert Token(at, text) in vocabularies(tmp_path / kind)["tokenizer.model"].special


def test_ranks_that_tiktoken_wrote_have_its_highest(tmp_path):
    lines = packers.run(TIKTOKEN, tmp_path, "tiktoken").splitlines()
    for folder, highest, count in map(json.loads, lines):
        [found] = vocabularies(Path(folder)).values()
        assert (found.top, found.entries) == (Token(highest, ""), count)
    assert len(lines) == 3


def test_tekken_has_as_many_ids_as_in_mistral_common(tmp_path):
    count = json.loads(packers.run(TEKKEN, tmp_path, "mistral_common"))
    [found] = vocabularies(tmp_path).values()
    assert (found.top, found.entries, count) == (Token(count - 1, ""), count, 320)


@pytest.mark.parametrize("beside", ["vocab.json", "vocab.txt", "dict.txt"])
def test_pieces_beside_what_has_the_ids_are_no_ids(beside):
    """M2M100 has the ids in vocab.json, BARTpho those of 40,030 of 250,000 pieces in dict.txt."""
    names = companions_of(["sentencepiece.bpe.model", beside])
    assert "sentencepiece.bpe.model" not in names
    assert companions_of(["sentencepiece.bpe.model"]) == ("sentencepiece.bpe.model",)
