"""Classes of a repository's own: what a config's auto_map names instead of transformers'."""

from collections.abc import Iterator, Mapping

from auditor.analytic.auto_classes import AUTO_MODEL, is_auto
from auditor.analytic.config import Config

_LONGEST = 256  # characters of a reference: "org/name--modeling_file.ClassName"


def custom_class(config: Config, asked: str | None) -> str | None:
    """The class that loading with trust_remote_code=True takes from the repository; None: none.

    `asked` is the class, or the auto class, that the loader asks for. Where auto_map has neither,
    but other models, that is its base model's, or its first: the auto class decides, and not
    architectures.
    """
    auto_map = config.values.get("auto_map")
    if not isinstance(auto_map, Mapping):
        return None
    models = dict(_models(auto_map))
    if asked is not None and is_auto(asked):
        return models.get(asked)
    named = (reference for reference in models.values() if reference.endswith(f".{asked}"))
    others = iter((*named, *filter(None, (models.get(AUTO_MODEL), *models.values()))))
    return next(others, None)


def _models(auto_map: Mapping[str, object]) -> Iterator[tuple[str, str]]:
    for auto, reference in auto_map.items():
        if is_auto(auto) and isinstance(reference, str) and 0 < len(reference) <= _LONGEST:
            yield auto, reference
