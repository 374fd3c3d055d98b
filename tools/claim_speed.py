"""How long a claim takes for every model type of the catalogue: `make claim-speed`.

Of each type the default config of its class is judged by three counts that no slip makes come out
soon (a third of the true one, one less than it, and a rounded one), and by one of the encoder. The
figure is processor time, from the config to the verdict, of the slowest of them. It prints the ten
slowest; `-v` prints all; words are model types. It ends with 1 where one takes more than a second.
Types whose defaults make no model (no vocabulary) are given what STATED has, or named.
"""

import sys
import time
from collections.abc import Iterator

from support.published_configs import VALUES

from auditor.analytic import Config, catalogue
from auditor.claims.judge import judge
from auditor.claims.subject import subject_of
from auditor.errors import CheckpointError

STATED = {"esm": {"vocab_size": 33}, "lfm2_moe": VALUES["LiquidAI/LFM2-8B-A1B"]}
MOST = 1.0  # seconds of processor time
SHOWN = 10


def claims_of(parameters: int) -> Iterator[tuple[str, str]]:
    yield str(parameters // 3 + 1), ""
    yield str(parameters - 1), ""
    yield f"{parameters * 7 // 5 // 10**6}.7M", ""
    yield str(parameters // 2 + 7), "attention"


def seconds(model_type: str) -> tuple[float, str]:
    """The slowest claim's, and which it is; CheckpointError where no model follows."""
    target = catalogue.base_class(model_type)
    values = {"model_type": model_type, **STATED.get(model_type, {})}
    slowest, which = 0.0, ""
    total = catalogue.expect(Config(values=values), target).parameters
    for text, part in claims_of(total):
        since = time.process_time()
        config = Config(values=values)
        subject = subject_of(target, catalogue.expect(config, target), config)
        judge(subject, text, part)
        took = time.process_time() - since
        if took > slowest:
            slowest, which = took, f"{text} {part}".strip()
    return slowest, which


def main() -> None:
    asked = [word for word in sys.argv[1:] if not word.startswith("-")]
    found: list[tuple[float, str, str]] = []
    left: list[str] = []
    for model_type in asked or catalogue.model_types():
        try:
            found.append((*seconds(model_type), model_type))
        except CheckpointError:
            left.append(model_type)
    found.sort(reverse=True)
    shown = found if "-v" in sys.argv else found[:SHOWN]
    for took, which, model_type in shown:
        print(f"{took:6.2f} s  {model_type}: {which}")
    slow = [model_type for took, _, model_type in found if took > MOST]
    if left:
        print(f"no model follows from the defaults of {', '.join(left)}")
    print(f"{len(found)} model types, {len(slow)} take more than {MOST:.0f} s")
    sys.exit(bool(slow))


if __name__ == "__main__":
    main()
