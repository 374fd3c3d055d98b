"""Small sizes, and what every family's strategy is made of."""

from typing import Any

from hypothesis import strategies as st
from support.fault_bench import COUNTS

from auditor.analytic import catalogue

Values = dict[str, Any]


def sizes(largest: int, *, least: int = 1) -> st.SearchStrategy[int]:
    return st.integers(least, largest)


def four_layers(model_type: str) -> Values:
    """The depths of a type's default config as four, for tests that need no more layers."""
    return dict.fromkeys(catalogue.family(model_type).defaults.keys() & set(COUNTS), 4)


def labels() -> st.SearchStrategy[Values]:
    """How many labels a head has, said in one of the ways that a config has for it."""
    return st.one_of(
        st.just({}),
        st.builds(lambda number: {"num_labels": number}, sizes(5)),
        st.builds(lambda number: {"id2label": {str(n): "x" for n in range(number)}}, sizes(5)),
    )


def some_of(values: Values, *together: frozenset[str]) -> st.SearchStrategy[Values]:
    """The values with some keys left out; of keys that stand together all or none."""
    groups = [frozenset({key}) for key in values if not any(key in group for group in together)]
    dropped = st.sets(st.sampled_from([*groups, *together]))
    return dropped.map(
        lambda groups: {
            key: value for key, value in values.items() if not any(key in group for group in groups)
        }
    )


def uneven_heads() -> dict[str, st.SearchStrategy[Any]]:
    """Heads that do not share the width evenly, or have their own; keys and values for each, or
    for all.
    """
    return {
        "hidden_size": sizes(40, least=8),
        "head_dim": st.sampled_from([2, 6]),
        "num_key_value_heads": st.sampled_from([None, 1]),
    }


@st.composite
def decoder_values(draw: st.DrawFn, **options: st.SearchStrategy[Any]) -> Values:
    """A small config of a Llama-like decoder; `options` are keys of the family's own."""
    heads = draw(sizes(4))
    values = {
        "vocab_size": draw(sizes(50)),
        "hidden_size": 2 * heads * draw(sizes(5)),
        "intermediate_size": draw(sizes(40)),
        "num_hidden_layers": draw(sizes(4, least=0)),
        "num_attention_heads": heads,
        "num_key_value_heads": draw(st.sampled_from([n for n in range(1, 5) if not heads % n])),
        "tie_word_embeddings": draw(st.booleans()),
        **{key: draw(option) for key, option in options.items()},
        **draw(labels()),
    }
    # Without its vocabulary, width or depth a model would be of full size, and slow to build.
    kept = {"hidden_size", "num_hidden_layers", "num_attention_heads", "num_key_value_heads"}
    rest = {key: value for key, value in values.items() if key not in kept}
    padding = {"pad_token_id": None}  # some have one by default, beyond a small vocabulary
    return {key: values[key] for key in kept} | draw(some_of(rest)) | padding


@st.composite
def handed_on(draw: st.DrawFn, stages: int) -> Values:
    """What a backbone hands on: by name, by number from either end, by both, or unsaid."""
    chosen = draw(st.lists(sizes(stages, least=0), min_size=1, unique=True).map(sorted))
    names = ["stem", *(f"stage{number}" for number in range(1, stages + 1))]
    by_name = {"out_features": [names[number] for number in chosen]}
    by_number = {"out_indices": chosen}
    from_the_end = {"out_indices": [number - stages - 1 for number in chosen]}
    unsaid = {"out_features": None, "out_indices": None}
    said = [{}, unsaid, by_name, by_number, from_the_end, by_name | by_number]
    return draw(st.sampled_from(said))


@st.composite
def with_layer_types(
    draw: st.DrawFn, config: st.SearchStrategy[Values], types: tuple[str, ...], *, null: bool = True
) -> Values:
    """The config with a type for each of its layers; `null`: or without, or with null for all."""
    values = draw(config)
    count = values["num_hidden_layers"]
    drawn = st.lists(st.sampled_from(types), min_size=count, max_size=count)
    each = drawn.map(lambda layer_types: {"layer_types": layer_types})
    return values | draw(each | st.just({}) | st.just({"layer_types": None}) if null else each)
