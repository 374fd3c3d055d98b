"""The law of a distributed checkpoint's .metadata: shortcuts read it as opcode by opcode does."""

from functools import cache
from random import Random

from support.distributed import METADATA, dcp_bytes

from auditor.bounded.pickle_machine import follow_pickle
from auditor.bounded.pickle_names import PickledDict, is_known, renamed
from auditor.containers.dcp import parse
from auditor.containers.dcp_entries import EntryShortcut, attributes, stored_place, tensor_entry
from auditor.containers.weight_formats import FilePart, PartialFile, UnsafeFileError
from auditor.errors import CheckpointError
from fuzz import programs
from fuzz.judges import of_pickle
from fuzz.target import READ, REFUSED, UNSAFE, Target, Verdict

_TABLE = {
    "layers.0.weight": ("BF16", (70_000, 300)),
    "layers.0.bias": ("F32", (5,)),
    "norm.scale": ("F32", ()),
    "experts": ("BF16", (2, 3, 4, 5)),
    "empty": ("I64", (0, 3)),
}


@cache
def _seeds() -> tuple[bytes, ...]:
    forms = (
        {},
        {"ranks": 2, "keys": ("model",)},
        {"ranks": 3, "keys": ("app", "model"), "optimizer": True},
        {"ranks": 2, "spoil": "gap layers"},
        {"spoil": "escape"},
    )
    return tuple(dcp_bytes(_TABLE, **form)[0] for form in forms)


def case(random: Random) -> bytes:
    """Change bytes, opcodes or numbers of a .metadata, or take any pickle."""
    data = random.choice(_seeds())
    match random.randrange(8):
        case 0:
            return programs.mutated(random.choice(programs.pickles()), random)
        case 1 | 2 | 3:
            return programs.mutated(data, random)
        case _:
            changed = bytearray(data)
            for _ in range(random.choice((1, 1, 2, 4))):
                at = random.randrange(len(changed))
                piece = random.choice((random.randbytes(1), bytes(1), b"\xff", changed[:1], b"h"))
                changed[at : at + random.choice((1, 1, 0))] = piece
            return bytes(changed)


def judge(data: bytes) -> Verdict:
    """Compare the reader with one without shortcuts, and with the imports of an unpickler."""
    try:
        parse(".metadata", PartialFile(len(data), (FilePart(0, data),) if data else ()))
        kind = READ
    except UnsafeFileError:
        return Verdict(UNSAFE)
    except CheckpointError:
        kind = REFUSED
    for judged in of_pickle(data):
        unknown = [name for name in judged.imports if not is_known(renamed(*name))]
        if unknown:
            return Verdict(kind, f"is not called unsafe, and an unpickler imports {unknown}")
    short, plain = _entries(data, EntryShortcut(data)), _entries(data, None)
    is_same = short is None or short == plain
    return Verdict(kind, None if is_same else "is read otherwise without shortcuts")


def _entries(data: bytes, shortcut: EntryShortcut | None) -> object:
    """Return the entries of a pickle that is followed to its end, else None."""
    pickle = follow_pickle(data, 0, shortcut)
    found = attributes(pickle.value, f"{METADATA}.Metadata")
    if pickle.fault or found is None:
        return pickle.outside if pickle.fault is None else None
    tensors, places, plans = (
        value.pairs if isinstance(value := found.get(key), PickledDict) else []
        for key in ("state_dict_metadata", "storage_data", "planner_data")
    )
    return (
        [(str(key), tensor_entry(value)) for key, value in tensors],
        [stored_place(key, value) for key, value in places],
        [(key, value) for key, value in plans if isinstance(key, str) and _is_text(value)],
    )


def _is_text(value: object) -> bool:
    return isinstance(value, tuple) and all(isinstance(one, str) for one in value)


TARGETS = {
    "dcp": Target(
        "dcp",
        "a .metadata is read as it is without shortcuts, and one that imports is called unsafe",
        case,
        judge,
    )
}
