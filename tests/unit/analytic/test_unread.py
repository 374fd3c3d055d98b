import pytest
from support.examples import each_night

from auditor.analytic.unread import unread_names


@pytest.mark.oracle
def test_a_small_model_shows_which_parameters_its_class_never_reads(subtests):
    transformers = pytest.importorskip("transformers", reason="the judge of what is read")
    from rebuild_unread import configs_of, names_of  # noqa: PLC0415 - imports the library

    esm = next(configs_of("esm"))
    pair = next(configs_of("vision-encoder-decoder"))
    for config, target in ((esm, "EsmForMaskedLM"), (pair, "VisionEncoderDecoderModel")):
        with subtests.test(target=target):
            read, unread = names_of(getattr(transformers, target), config)
            assert unread <= unread_names(target)
            assert unread
            assert read.isdisjoint(unread_names(target))


@each_night
@pytest.mark.oracle
def test_the_data_is_what_the_installed_library_shows(monkeypatch):
    pytest.importorskip("transformers", reason="the judge of what is read")
    monkeypatch.setattr("sys.argv", ["rebuild_unread.py"])
    from rebuild_unread import unread  # noqa: PLC0415 - imports the library

    for target, names in unread().items():
        assert unread_names(target) == frozenset(names)
