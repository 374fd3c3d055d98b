"""Unexpected names are looked up in all classes of a family."""

from hypothesis import given
from support.checkpoints import BERT_CLASSES, config_bytes, spoilt

from auditor.analytic import catalogue, read_config
from auditor.reconciler import unexpected
from auditor.reconciler.matching import Candidate, Places


@given(spoilt())
def test_unexpected_names_are_identified_as_by_each_class_alone(case):
    config = read_config("config.json", config_bytes(**case.changes))
    loading = catalogue.expect(config, case.target).loading
    every = tuple(catalogue.sibling(config, name) for name in BERT_CLASSES)
    candidates = [Candidate(tensor, tensor.name) for tensor in case.tensors]
    found = unexpected.identify(candidates, loading, lambda: every)
    told = loading.unknown([tensor.name for tensor in case.tensors])
    for tensor, item, unknown in zip(case.tensors, found, told, strict=True):
        if not unknown.buffer:
            places = (
                Places(one.names, one.prefix, one.loading).of((tensor.name,)) for one in every
            )
            known = [
                (one.target, place.expected)
                for one, (place,) in zip(every, places, strict=True)
                if place.expected
            ]
            alone = unexpected._used(tensor, known)  # noqa: SLF001 - the slow way
            assert item._replace(silent=False) == alone
