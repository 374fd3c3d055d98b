"""Prompts that are learned: prompt tuning, P-tuning, prefix tuning, multitask prompt tuning.

What made them (an MLP, an LSTM, a projection) is left out on saving: the file holds its outputs.
"""

from collections.abc import Iterator

from auditor.analytic.adapters.saved_modules import expected_tensor
from auditor.analytic.adapters.settings import AdapterSettings
from auditor.analytic.expectation import ExpectedTensor

_EMBEDDINGS = "prompt_embeddings"
_TOWERS = "SEQ_2_SEQ_LM"  # the task with an encoder and a decoder, which get a prompt each


def prompt_tuning(settings: AdapterSettings) -> Iterator[ExpectedTensor]:
    """One embedding for each virtual token: (num_virtual_tokens * submodules, token_dim)."""
    yield expected_tensor(_EMBEDDINGS, _tokens(settings), settings.count("token_dim"))


def prefix_tuning(settings: AdapterSettings) -> Iterator[ExpectedTensor]:
    """A key and a value for each layer: (num_virtual_tokens, num_layers * 2 * token_dim)."""
    width = settings.count("num_layers") * 2 * settings.count("token_dim")
    yield expected_tensor(_EMBEDDINGS, settings.count("num_virtual_tokens"), width)


def multitask_prompt_tuning(settings: AdapterSettings) -> Iterator[ExpectedTensor]:
    """A prompt for all tasks, and for each a matrix of low rank that it is multiplied by."""
    tokens, width = _tokens(settings), settings.count("token_dim")
    tasks, rank = settings.count("num_tasks"), settings.count("num_ranks")
    yield expected_tensor("prefix_task_cols", tasks, tokens, rank)
    yield expected_tensor("prefix_task_rows", tasks, rank, width)
    yield expected_tensor(_EMBEDDINGS, tokens, width)


def _tokens(settings: AdapterSettings) -> int:
    """Of all towers: the settings say how many there are, or the task does."""
    towers = 2 if settings.task == _TOWERS else 1
    if settings.config.present("num_transformer_submodules"):
        towers = settings.count("num_transformer_submodules")
    return settings.count("num_virtual_tokens") * towers
