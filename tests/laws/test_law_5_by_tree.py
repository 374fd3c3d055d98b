"""Law 5 by the tree of blocks: what a tree lists once folds as all the names in it do."""

from collections.abc import Iterable

from hypothesis import given
from hypothesis import strategies as st
from support.block_trees import blocks, modules
from support.examples import examples

from auditor.analytic import Config, Expectation, catalogue
from auditor.analytic.families import FILES
from auditor.analytic.listing import inventory
from auditor.errors import CheckpointError, SourceError
from auditor.formats.module_table import lines
from auditor.names.folding import expand, first, fold, how_many, number_pattern, refold
from auditor.reconciler.rows import ExpectedRows
from auditor.tensors import natural_key

PLACES = st.sets(st.integers(0, 12), min_size=1).map(sorted)
BOXES = st.lists(st.tuples(st.sampled_from(("h", "h.w1", r"h\{")), PLACES, PLACES), max_size=6)
# Layers of several kinds, few of them, and few experts, under the keys of every family.
SMALL = st.fixed_dictionaries(
    {},
    optional={
        **dict.fromkeys(("num_hidden_layers", "n_layer", "encoder_layers"), st.integers(0, 4)),
        **dict.fromkeys(("n_routed_experts", "num_experts", "num_local_experts"), st.just(4)),
        "first_k_dense_replace": st.integers(0, 4),
        "moe_layer_freq": st.integers(1, 3),
        "decoder_sparse_step": st.integers(1, 3),
        "mlp_only_layers": st.lists(st.integers(0, 4), max_size=3),
        "tie_word_embeddings": st.booleans(),
    },
)


def patterns_of(boxes: Iterable[tuple[str, list[int], list[int]]]) -> list[str]:
    """Patterns of two numbers, of which no two share a name."""
    seen: set[str] = set()
    found = []
    for word, layers, experts in boxes:
        pattern = f"{word}.{number_pattern(layers)}.e{number_pattern(experts)}.z"
        if seen.isdisjoint(expand(pattern)):
            seen.update(expand(pattern))
            found.append(pattern)
    return found


@given(BOXES)
def test_patterns_fold_as_the_names_that_they_stand_for(boxes):
    patterns = patterns_of(boxes)
    names = [name for pattern in patterns for name in expand(pattern)]
    assert refold(patterns) == fold(names, words=False)


@given(BOXES)
def test_a_pattern_is_counted_and_begun_without_its_names(boxes):
    for pattern in patterns_of(boxes):
        names = expand(pattern)
        assert (first(pattern), how_many(pattern)) == (names[0], len(names))


@given(modules(blocks()))
def test_an_outline_stands_for_each_tensor_and_each_module_once(tree):
    listed = inventory(tree, {})
    tensors = [
        one._replace(name=name) for one in listed.outline.tensors for name in expand(one.name)
    ]
    assert sorted(tensors) == sorted(listed.tensors)
    modules_ = [(name, of) for key, of in listed.outline.modules.items() for name in expand(key)]
    assert sorted(modules_) == sorted(listed.modules.items())


def require_equal_rows(expectation: Expectation, depth: int) -> None:
    rows = ExpectedRows(expectation, depth=None)
    assert list(rows) == sorted(rows, key=lambda row: natural_key(row.prefix))
    assert rows.folded is not None
    assert lines(rows, depth) == lines(tuple(rows), depth)


@given(modules(blocks()), st.integers(0, 6))
def test_the_rows_of_a_tree_are_those_of_its_names(tree, depth):
    listed = inventory(tree, {})
    require_equal_rows(
        Expectation(
            target="Target",
            model_type="type",
            prefix="",
            by="closed-form",
            listed=listed,
            parameters=listed.total.value,
            formula=str(listed.total),
            legend=(),
        ),
        depth,
    )


@examples(60)
@given(st.data(), SMALL, st.integers(1, 8))
def test_the_rows_of_a_family_are_those_of_its_names(data, values, depth):
    model_type = data.draw(st.sampled_from(sorted(FILES)))
    target = data.draw(st.sampled_from(catalogue.siblings(model_type)))
    try:
        expectation = catalogue.expect(Config(values={"model_type": model_type, **values}), target)
    except (CheckpointError, SourceError):
        return
    require_equal_rows(expectation, depth)
