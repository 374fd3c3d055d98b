"""How long `audit explain TYPE` takes as a whole process: `make explain-speed`.

For every model type of the catalogue, or the words given, it prints the shortest of RUNS runs, the
slowest type first; the figure is processor time, user and system, of the process from its start to
its end. It ends with 1 where one is above MOST, and where a type has no answer at all.
"""

import os
import sys

from auditor.analytic import catalogue

RUNS = 5
MOST = 0.3  # seconds of processor time
ANSWERS = {0, 1}  # 1: of the defaults of the class no model can be built, and why is said


def seconds(model_type: str) -> float:
    """Of one run; OSError where it ends otherwise than with an answer."""
    own = {key: value for key, value in os.environ.items() if key != "PYTHONDONTWRITEBYTECODE"}
    to = [(os.POSIX_SPAWN_OPEN, each, os.devnull, os.O_WRONLY, 0) for each in (1, 2)]
    command = [sys.executable, "-m", "auditor", "explain", model_type]
    child = os.posix_spawn(sys.executable, command, own, file_actions=to)
    _, status, used = os.wait4(child, 0)
    if os.waitstatus_to_exitcode(status) not in ANSWERS:
        raise OSError(f"{' '.join(command[1:])} ended with {os.waitstatus_to_exitcode(status)}")
    return used.ru_utime + used.ru_stime


def main() -> None:
    types = sys.argv[1:] or catalogue.model_types()
    shortest = dict.fromkeys(types, float("inf"))
    for _ in range(RUNS):  # in rounds: what else the machine does slows all of them alike
        for model_type in types:
            shortest[model_type] = min(shortest[model_type], seconds(model_type))
    for model_type, took in sorted(shortest.items(), key=lambda pair: -pair[1]):
        print(f"{took:6.3f} s  {model_type}")
    slow = [model_type for model_type, took in shortest.items() if took > MOST]
    print(f"{len(shortest)} model types, {len(slow)} take more than {MOST} s")
    sys.exit(bool(slow))


if __name__ == "__main__":
    main()
