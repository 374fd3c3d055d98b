"""The settings of a generation_config.json that transformers refuses to save.

transformers warns of them when it loads the file. This module reimplements
`GenerationConfig.validate` of transformers 5.24 with strict=True; a test compares the two.
"""

from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

LIBRARY = "transformers 5.24"

_CACHES = (
    *("dynamic", "hybrid", "hybrid_chunked", "offloaded", "offloaded_hybrid"),
    *("offloaded_hybrid_chunked", "offloaded_static", "paged", "quantized", "sliding_window"),
    "static",
)
# A setting, a test of its value if it is not null, and what a value has to be.
_SINGLE: tuple[tuple[str, Callable[[Any], bool], str], ...] = (
    (
        "early_stopping",
        lambda early: early in (True, False, "never"),
        'expected true, false or "never"',
    ),
    ("max_new_tokens", lambda most: most > 0, "expected a number above 0"),
    (
        "assistant_ensemble_weight",
        lambda weight: 0.0 < weight < 1.0,
        "expected a number between 0 and 1",
    ),
    ("pad_token_id", lambda pad: pad >= 0, "expected an id from 0 on"),
    (
        "cache_implementation",
        lambda cache: cache in frozenset(_CACHES),
        f"expected one of {', '.join(_CACHES)}",
    ),
)
# A test of the config under which settings have no effect, the value at which each of them is
# accepted nevertheless, and why it has no effect.
_WITHOUT_EFFECT: tuple[tuple[Callable[[Mapping[str, Any]], bool], Mapping[str, Any], str], ...] = (
    (
        lambda config: config.get("do_sample") is not True,
        {
            "temperature": 1.0,
            "top_p": 1.0,
            "min_p": None,
            "top_h": None,
            "typical_p": 1.0,
            "top_k": 50,
            "epsilon_cutoff": 0.0,
            "eta_cutoff": 0.0,
        },
        "only sampling reads it, and do_sample is not true",
    ),
    (
        lambda config: config.get("num_beams") in (None, 1),
        {"early_stopping": False, "length_penalty": 1.0},
        "only beam search reads it, and num_beams is 1",
    ),
    (
        lambda config: config.get("use_cache") is False,
        {"cache_implementation": None, "cache_config": None},
        "use_cache is false",
    ),
    (
        lambda config: config.get("return_dict_in_generate") is not True,
        dict.fromkeys(
            ("output_attentions", "output_hidden_states", "output_scores", "output_logits"), False
        ),
        "it has no effect: return_dict_in_generate is not true",
    ),
)
_ARGUMENTS = (
    *("logits_processor", "stopping_criteria", "prefix_allowed_tokens_fn", "synced_gpus"),
    *("assistant_model", "streamer", "negative_prompt_ids", "negative_prompt_attention_mask"),
)


class RefusedSetting(NamedTuple):
    """A refused setting and the reason."""

    key: str
    why: str


def refusals(config: Mapping[str, Any]) -> tuple[RefusedSetting, ...]:
    """Return the refused settings, in the order of the checks."""
    return () if _fails(config) else tuple(_check_settings(config))


def setting_that_stops_loading(config: Mapping[str, Any]) -> str | None:
    """Return the setting that makes loading fail, because transformers cannot compare its type.

    Return "" if no single setting makes loading fail, but several together do; None if loading
    succeeds.
    """
    if not _fails(config):
        return None
    return next((key for key, value in config.items() if _fails({key: value})), "")


def _fails(config: Mapping[str, Any]) -> bool:
    try:
        tuple(_check_settings(config))
    except TypeError:
        return True
    return False


def _check_settings(config: Mapping[str, Any]) -> Iterator[RefusedSetting]:
    for key, accepts, why in _SINGLE:
        if config.get(key) is not None and not accepts(config[key]):
            yield RefusedSetting(key, why)
    for holds, accepted, why in _WITHOUT_EFFECT:
        for key, value in accepted.items() if holds(config) else ():
            if config.get(key) is not None and config[key] != value:
                yield RefusedSetting(key, why)
    yield from _returned_sequences(config)
    suppressed = config.get("suppress_tokens")
    for key in ("forced_bos_token_id", "forced_eos_token_id"):
        forced = config.get(key)
        if suppressed is None or forced is None:
            continue
        ids = {forced} if isinstance(forced, int) else set(forced)
        if ids and ids <= set(suppressed):
            yield RefusedSetting(key, "all of its ids are in suppress_tokens too: no token is left")
    for key in filter(config.__contains__, _ARGUMENTS):
        yield RefusedSetting(key, "it is an argument of generate(), not a setting")


def _returned_sequences(config: Mapping[str, Any]) -> Iterator[RefusedSetting]:
    key = "num_return_sequences"
    sequences, beams = config.get(key), config.get("num_beams")
    if sequences is None or sequences <= 1:
        return
    if beams not in (None, 1):
        if sequences > beams:
            yield RefusedSetting(key, f"num_beams is {beams}, which is less")
    elif not config.get("do_sample"):
        yield RefusedSetting(key, "greedy search has one, and do_sample is not true")
