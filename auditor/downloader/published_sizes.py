"""What the Hub's answer about a model says of its size: its own count, and the model card's."""

from collections.abc import Iterator, Mapping

from auditor.checkpoint.snapshot import PublishedText

# Keys of a card's front matter under which people give a size; the Hub has none for it.
_OF_CARDS = (
    *("parameters", "params", "num_parameters", "n_parameters", "total_parameters"),
    *("parameter_count", "model_size", "model-size", "size"),
)
_LONGEST = 40  # characters of a number with its unit
_LARGEST = 2**63


def published_in(answer: Mapping[str, object]) -> tuple[PublishedText, ...]:
    """Sorted by key; what is not such a number is left out, for nothing else depends on it."""
    found = (*_counted(answer.get("safetensors")), *_said(answer.get("cardData")))
    return tuple(sorted(found, key=lambda one: one.name))


def _counted(of_files: object) -> Iterator[PublishedText]:
    """The sum over all dtypes, which older answers leave to the reader."""
    if not isinstance(of_files, dict):
        return
    total, by_dtype = of_files.get("total"), of_files.get("parameters")
    key = "safetensors.total"
    if total is None and isinstance(by_dtype, dict) and by_dtype:
        counts = [count for count in by_dtype.values() if type(count) is int]
        total, key = sum(counts) if len(counts) == len(by_dtype) else None, "safetensors.parameters"
    if type(total) is int and 0 < total < _LARGEST:
        yield PublishedText(name=key, text=str(total))


def _said(card: object) -> Iterator[PublishedText]:
    for key in _OF_CARDS if isinstance(card, dict) else ():
        value = card.get(key) if isinstance(card, dict) else None
        if type(value) is int and not 0 < value < _LARGEST:
            continue
        if type(value) in {int, str} and 0 < len(str(value)) <= _LONGEST:
            yield PublishedText(name=f"cardData.{key}", text=str(value))
