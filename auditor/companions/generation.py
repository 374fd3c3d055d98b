"""The settings of a generation_config.json that transformers refuses to save.

transformers warns of them when it loads the file. This module reimplements
`GenerationConfig.validate` of transformers 5.24 with strict=True; a test compares the two.
"""

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

LIBRARY = "transformers 5.24"

# Settings of sampling, and the value at which each has no effect.
_SAMPLING = {
    "temperature": 1.0,
    "top_p": 1.0,
    "min_p": None,
    "top_h": None,
    "typical_p": 1.0,
    "top_k": 50,
    "epsilon_cutoff": 0.0,
    "eta_cutoff": 0.0,
}
_OUTPUTS = ("output_attentions", "output_hidden_states", "output_scores", "output_logits")
_CACHES = frozenset(
    (
        "static",
        "offloaded_static",
        "sliding_window",
        "hybrid",
        "hybrid_chunked",
        "offloaded_hybrid",
        "offloaded_hybrid_chunked",
        "dynamic",
        "offloaded",
        "quantized",
        "paged",
    )
)
_ARGUMENTS = (
    "logits_processor",
    "stopping_criteria",
    "prefix_allowed_tokens_fn",
    "synced_gpus",
    "assistant_model",
    "streamer",
    "negative_prompt_ids",
    "negative_prompt_attention_mask",
)


class RefusedSetting(NamedTuple):
    """A refused setting and the reason."""

    key: str
    why: str


def refusals(config: Mapping[str, Any]) -> tuple[RefusedSetting, ...]:
    """Return the refused settings, in the order of the checks."""
    return () if _fails(config) else _check_settings(config)


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
        _check_settings(config)
    except TypeError:
        return True
    return False


def _check_settings(config: Mapping[str, Any]) -> tuple[RefusedSetting, ...]:
    return (
        *_single_settings(config),
        *_sampling(config),
        *_beams(config),
        *_returned_sequences(config),
        *_tokens_and_arguments(config),
    )


def _single_settings(config: Mapping[str, Any]) -> Iterator[RefusedSetting]:
    early = config.get("early_stopping")
    if early not in (None, True, False, "never"):
        yield RefusedSetting("early_stopping", 'expected true, false or "never"')
    most = config.get("max_new_tokens")
    if most is not None and most <= 0:
        yield RefusedSetting("max_new_tokens", "expected a number above 0")
    weight = config.get("assistant_ensemble_weight")
    if weight is not None and not 0.0 < weight < 1.0:
        yield RefusedSetting("assistant_ensemble_weight", "expected a number between 0 and 1")
    pad = config.get("pad_token_id")
    if pad is not None and pad < 0:
        yield RefusedSetting("pad_token_id", "expected an id from 0 on")
    cache = config.get("cache_implementation")
    if cache is not None and cache not in _CACHES:
        yield RefusedSetting(
            "cache_implementation", f"expected one of {', '.join(sorted(_CACHES))}"
        )


def _sampling(config: Mapping[str, Any]) -> Iterator[RefusedSetting]:
    if config.get("do_sample") is True:
        return
    for key, silent in _SAMPLING.items():
        value = config.get(key)
        if value is not None and value != silent:
            yield RefusedSetting(key, "only sampling reads it, and do_sample is not true")


def _beams(config: Mapping[str, Any]) -> Iterator[RefusedSetting]:
    if config.get("num_beams") not in (None, 1):
        return
    if config.get("early_stopping") not in (None, False):
        yield RefusedSetting("early_stopping", "only beam search reads it, and num_beams is 1")
    if config.get("length_penalty") not in (None, 1.0):
        yield RefusedSetting("length_penalty", "only beam search reads it, and num_beams is 1")


def _returned_sequences(config: Mapping[str, Any]) -> Iterator[RefusedSetting]:
    sequences, beams = config.get("num_return_sequences"), config.get("num_beams")
    if sequences is None or sequences <= 1:
        return
    if beams in (None, 1):
        if not config.get("do_sample"):
            yield RefusedSetting(
                "num_return_sequences", "greedy search has one, and do_sample is not true"
            )
    elif sequences > beams:
        yield RefusedSetting("num_return_sequences", f"num_beams is {beams}, which is less")


def _tokens_and_arguments(config: Mapping[str, Any]) -> Iterator[RefusedSetting]:
    yield from _settings_without_effect(config)
    suppressed = config.get("suppress_tokens")
    for key in ("forced_bos_token_id", "forced_eos_token_id"):
        forced = config.get(key)
        if suppressed is None or forced is None:
            continue
        ids = {forced} if isinstance(forced, int) else set(forced)
        if ids and ids <= set(suppressed):
            yield RefusedSetting(key, "all of its ids are in suppress_tokens too: no token is left")
    for key in _ARGUMENTS:
        if key in config:
            yield RefusedSetting(key, "it is an argument of generate(), not a setting")


def _settings_without_effect(config: Mapping[str, Any]) -> Iterator[RefusedSetting]:
    """Yield the settings that are refused because other settings make them ineffective."""
    if config.get("use_cache") is False:
        for key in ("cache_implementation", "cache_config"):
            if config.get(key) is not None:
                yield RefusedSetting(key, "use_cache is false")
    if config.get("return_dict_in_generate") is not True:
        for key in _OUTPUTS:
            if config.get(key) is True:
                yield RefusedSetting(key, "it has no effect: return_dict_in_generate is not true")
