"""Compare forms with the families by hand, over the configs that the families' tests draw.

    PYTHONPATH=tools:tests python -m catalogue.judged --work reports/catalogue bert t5

prints for each class how many configs the form answers as the family does, refuses, or answers
otherwise. Forms are those of `--work`, else the packed ones; no library is built.
"""

import argparse
import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

import msgspec
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from support import diffusers_configs

from auditor.analytic import Config, Expectation, catalogue, diffusion, generated
from auditor.analytic.families import FILES
from auditor.analytic.generated.form import Form
from auditor.errors import CheckpointError, SourceError
from catalogue.pack import work_file

_DIFFUSERS = "diffusers"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("types", nargs="*", help="model types or `diffusers`; default: all")
    parser.add_argument("--work", type=Path, default=Path("reports/catalogue"))
    parser.add_argument("--examples", type=int, default=100)
    arguments = parser.parse_args()
    for model_type in arguments.types or (*catalogue.model_types(), _DIFFUSERS):
        for target, form in _twins(arguments.work, model_type):
            print(f"{model_type} {target}: {judged(model_type, form, arguments.examples)}")


def _twins(work: Path, model_type: str) -> Iterator[tuple[str, Form]]:
    """Yield the classes by hand that have a form."""
    is_component = model_type == _DIFFUSERS
    for target in diffusion.CLASSES if is_component else catalogue.siblings(model_type):
        place = f"{_DIFFUSERS}.{target}" if is_component else model_type
        path = work_file(work, model_type, target)
        learned = json.loads(path.read_text()).get("form") if path.exists() else None
        form = msgspec.convert(learned, Form) if learned else generated.forms(place).get(target)
        if form:
            yield target, form


def judged(model_type: str, form: Form, examples: int) -> str:
    """Return the numbers of equal, refused and wrong answers, and the keys and a config of them."""
    counts, keys, wrong = Counter[str](), Counter[str](), list[Any]()

    @settings(
        max_examples=examples,
        derandomize=True,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(_configs(model_type, form.target))
    def compare(values: Mapping[str, Any]) -> None:
        outcome, key = _compared(model_type, form, values)
        counts[outcome] += 1
        keys[key] += outcome == "outside"
        if outcome == "wrong":
            wrong.append(dict(values))

    compare()
    refused = f" ({', '.join(key for key, _ in keys.most_common(4) if key)})" if +keys else ""
    first = f": {wrong[0]}" if wrong else ""
    equal, outside = counts["equal"], counts["outside"]
    return f"{equal} equal, {outside} outside{refused}, {len(wrong)} wrong{first}"


def _configs(model_type: str, target: str) -> st.SearchStrategy[Mapping[str, Any]]:
    if model_type == _DIFFUSERS:
        return diffusers_configs.configs(target)
    values = import_module(f"support.strategies.{FILES[model_type]}").VALUES
    found: st.SearchStrategy[Mapping[str, Any]] = values.get(target, values[model_type])
    return found


def _compared(model_type: str, form: Form, values: Mapping[str, Any]) -> tuple[str, str]:
    """Return "equal", "outside" with its key, "wrong", or "refused" by the family."""
    try:
        if model_type == _DIFFUSERS:
            config = Config(values={"_class_name": form.target, **values})
            by_hand = diffusion.expect_diffusers(config, form.target)
        else:
            config = Config(values={"model_type": model_type, **values})
            by_hand = catalogue.expect(config, form.target)
    except (CheckpointError, SourceError):
        return "refused", ""
    try:
        by_form = generated.expect_form(config, form)
    except CheckpointError as error:
        return "outside", next(iter(error.keys), "")
    except SourceError as error:
        return "outside", str(error).partition(" for ")[2].partition(" ")[0]
    return ("equal" if _needed(by_hand) == _needed(by_form) else "wrong"), ""


def _needed(expected: Expectation) -> Sequence[Any]:
    return sorted((one for one in expected.tensors if not one.role.optional), key=str)


if __name__ == "__main__":
    main()
