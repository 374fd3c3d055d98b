"""The Transformer of 2017 against its paper's table 3, whose counts are in whole millions.

With D, F and N as there, H heads whose keys and values are D/H wide, and V words in one matrix:

    an encoder's layer    4*D^2 + (2*D*F + F + D) + 2*(2*D)
    a decoder's layer     8*D^2 + (2*D*F + F + D) + 3*(2*D)
    base, D 512, F 2048   6*(3,150,336 + 4,199,936) = 44,101,632, and  512*V
    big, D 1024, F 4096   6*(12,592,128 + 16,788,480) = 176,283,648, and 1024*V

The paper gives 65 and 213 million, and V as "about 37000", which would be 63.0 and 214.2. That is
more than rounding, and no other V makes it good: 65 needs 39,841 to 41,793 words, 213 needs 35,368
to 36,344. With 41,100 words all rows of the table come out as printed, but for the big model's.
"""

import pytest
from support.bert_configs import config_of

from auditor.analytic import Role, catalogue

WORDS = 41_100
BIG = {"d_model": 1024, "d_ff": 4096, "num_heads": 16}


def count(**values) -> int:
    return catalogue.expect(config_of(**values), "Transformer2017").parameters


def test_the_layers_are_those_of_the_paper():
    base = catalogue.expect(config_of(), "Transformer2017")
    modules = {prefix: parameters for prefix, (parameters, _) in base.modules.items()}
    assert modules["encoder.layers.0"] == 4 * 512**2 + (2 * 512 * 2048 + 2048 + 512) + 2 * 1024
    assert modules["decoder.layers.5"] == 8 * 512**2 + (2 * 512 * 2048 + 2048 + 512) + 3 * 1024
    assert base.modules["encoder"].formula == "N*(12*D^2 + 9*D)"
    assert base.modules["decoder"].formula == "N*(16*D^2 + 11*D)"
    assert base.formula == "V*D + N*(28*D^2 + 20*D)"


def test_one_matrix_is_counted_once_for_both_languages_and_the_output():
    base = catalogue.expect(config_of(), "Transformer2017")
    tied = [tensor for tensor in base.tensors if tensor.role is Role.TIED]
    assert [(tensor.name, tensor.tied_to) for tensor in tied] == [
        ("output.weight", "embedding.weight")
    ]
    assert base.modules["embedding"].parameters == 37_000 * 512
    assert base.modules["output"].parameters == 0


@pytest.mark.parametrize(
    ("values", "beside_words", "published", "words"),
    [
        pytest.param({}, 44_101_632, 65_000_000, range(39_841, 41_794), id="base"),
        pytest.param(BIG, 176_283_648, 213_000_000, range(35_368, 36_345), id="big"),
    ],
)
def test_the_published_count_is_another_vocabulary_away(values, beside_words, published, words):
    width = values.get("d_model", 512)
    assert count(**values) == beside_words + 37_000 * width
    assert abs(count(**values) - published) < 2_000_000
    for vocabulary in (words[0], words[-1]):
        assert round(count(**values, vocab_size=vocabulary) / 1e6) == published / 1e6
    for vocabulary in (words[0] - 1, words[-1] + 1):
        assert round(count(**values, vocab_size=vocabulary) / 1e6) != published / 1e6


def test_what_the_table_changes_changes_as_much_here_whatever_the_vocabulary(subtests):
    for changed, published in [
        ({"d_k": 16}, 58),
        ({"d_k": 32}, 60),
        ({"num_layers": 2}, 36),
        ({"num_layers": 4}, 50),
        ({"num_layers": 8}, 80),
        ({"d_ff": 1024}, 53),
        ({"d_ff": 4096}, 90),
    ]:
        with subtests.test(changed=changed, published=published):
            difference = (count(**changed) - count()) / 1e6
            assert (
                abs(difference - (published - 65)) < 1
            )  # half a million of rounding on either side
            assert round(count(**changed, vocab_size=WORDS) / 1e6) == published


def test_one_vocabulary_fits_the_table_at_three_widths(subtests):
    for changed, published in [
        ({}, 65),
        ({"d_model": 256, "d_k": 32, "d_v": 32}, 28),
        ({"d_model": 1024, "d_k": 128, "d_v": 128}, 168),
    ]:
        with subtests.test(changed=changed, published=published):
            assert round(count(**changed, vocab_size=WORDS) / 1e6) == published
