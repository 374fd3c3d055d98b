"""Writes what the scanners know, run by the Python of their environment: `inside.py FOLDER`.

names.json holds the names that they warn of; the pickles are plain ones into which fickling has
put a call, in each of its ways.
"""

import json
import pickle
import sys
from collections.abc import Iterable, Iterator, Mapping
from itertools import product
from pathlib import Path
from typing import Any

_ANY = "system"  # a name for a module of which every name is unsafe


def names() -> Iterator[tuple[str, str]]:
    from fickling.fickle import UNSAFE_IMPORTS  # noqa: PLC0415 - only in that environment
    from modelscan.settings import DEFAULT_SETTINGS  # noqa: PLC0415 - as above
    from picklescan.scanner import _unsafe_globals  # noqa: PLC0415 - as above

    tables: Iterable[Mapping[str, Any]] = DEFAULT_SETTINGS["unsafe_globals"].values()
    for table in (_unsafe_globals, *tables, dict.fromkeys(UNSAFE_IMPORTS, "*")):
        for module, unsafe in table.items():
            for name in [unsafe] if isinstance(unsafe, str) else sorted(unsafe):
                yield module, _ANY if name == "*" else name


def injected() -> Iterator[bytes]:
    from fickling.fickle import Pickled  # noqa: PLC0415 - only in that environment

    values = ({"a": 1}, [1, "b"], {"w": {"x": (1, 2)}})
    for value, protocol, first, output in product(
        values, range(2, 6), (True, False), (True, False)
    ):
        pickled = Pickled.load(pickle.dumps(value, protocol))
        pickled.insert_python_exec("1", run_first=first, use_output_as_unpickle_result=output)
        yield pickled.dumps()
        pickled = Pickled.load(pickle.dumps(value, protocol))
        pickled.insert_python("id", module="os", attr="system", run_first=first)
        yield pickled.dumps()


def main(folder: Path) -> None:
    (folder / "names.json").write_text(json.dumps(sorted(set(names()))))
    for number, content in enumerate(injected()):
        (folder / f"fickling{number}.pkl").write_bytes(content)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
