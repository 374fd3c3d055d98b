"""The law of torch files: what torch.load would unpickle is what is read here, or it is refused."""

import re
from random import Random

from auditor.containers.pickle_imports import KNOWN
from auditor.containers.pickle_interpreter import follow_pickle

from auditor.containers.pickle_values import Global, Ran
from auditor.containers.torch_file import parse
from auditor.containers.weight_formats import FilePart, PartialFile, Table
from auditor.errors import CheckpointError
from fuzz import archives, programs
from fuzz.hostile_files import hostile_files, legacy
from fuzz.judges import Judged, of_file, of_pickle
from fuzz.loaded import table_fault
from fuzz.same import same
from fuzz.target import READ, REFUSED, UNSAFE, Target, Verdict

# What torch's reader says of entries beside the pickle. Of those the directory alone is read here,
# so that one with a broken header of its own, or an odd version, is not told.
_UNREAD = (
    r"failed reading file (?!data\.pkl)|Couldn't parse the version|version \d+ of PyTorch|"
    r"supported version for reading|codec can't decode"
)

# --- one pickle -------------------------------------------------------------------------------


def pickle_case(random: Random) -> bytes:
    return programs.mutated(random.choice(programs.pickles()), random)


def judge_pickle(data: bytes) -> Verdict:
    """Following a pickle against CPython's unpickler, over both kinds of stream."""
    ran = follow_pickle(data)
    kind = REFUSED if ran.fault else UNSAFE if set(ran.globals) - KNOWN else READ
    faults = (_differs(ran, judged) for judged in of_pickle(data))
    return Verdict(kind, next((fault for fault in faults if fault), None))


def _differs(ran: Ran, judged: Judged) -> str | None:
    theirs = tuple(dict.fromkeys(Global(*name) for name in judged.imports))
    if ran.fault:
        if any(a != b for a, b in zip(ran.globals, theirs, strict=False)):
            return f"imports {ran.globals} before its fault, and they {theirs}"
        return None
    if judged.error:
        return f"is followed without a fault, and they say {judged.error}"
    if ran.globals != theirs:
        return f"imports {ran.globals}, and they {theirs}"
    if ran.stop != judged.stop:
        return f"ends at {ran.stop}, and theirs at {judged.stop}"
    return None if same(ran.value, judged.value) else f"is {ran.value}, and theirs {judged.value}"


# --- a file -----------------------------------------------------------------------------------


def file_case(random: Random) -> bytes:
    """A file of torch.save, its bytes, its pickle or its archive changed; or a hostile one."""
    match random.randrange(8):
        case 0:
            return _bytes(random.choice(programs.files()), random)
        case 1:
            content = random.choice(hostile_files())
            return _bytes(content, random) if random.random() < 0.8 else content
        case 2:
            pickle = programs.mutated(random.choice(programs.pickles()), random)
            return legacy(pickle, random.choice((0, 1, 2, 3, 3, 3, 4)))
        case 3 | 4:
            return _repickled(random)
        case _:
            return _archive(random)


def _repickled(random: Random) -> bytes:
    """A file of torch.save with its own storages, and another pickle that asks for them."""
    pickle, storages = random.choice(programs.saved())
    if random.random() < 0.5:
        pickle = programs.numbers(pickle, random)
    else:
        pickle = programs.mutated(pickle, random)
    return archives.written(archives.torch_form(pickle, storages))


def _archive(random: Random) -> bytes:
    pickle = random.choice(programs.pickles())
    if random.random() < 0.3:
        pickle = programs.mutated(pickle, random)
    form = archives.torch_form(pickle, [bytes(24)] * random.randrange(3))
    for _ in range(random.choice((1, 1, 2, 3))):
        form = archives.mutated(form, random, programs.HOSTILE)
    content = archives.written(form)
    return _bytes(content, random) if random.random() < 0.2 else content


def _bytes(content: bytes, random: Random) -> bytes:
    """Changes where the structure is: near the ends, at marks, and anywhere."""
    changed = bytearray(content)
    for _ in range(random.choice((1, 1, 2, 4))):
        marks = [at for at in range(len(changed) - 4) if changed[at : at + 2] == b"PK"] or [0]
        near = random.choice(marks) + random.randrange(50)
        at = random.choice((near, random.randrange(len(changed) + 1), random.randrange(300)))
        width = random.choice((1, 1, 2, 4))
        piece = random.choice((random.randbytes(width), b"\xff" * width, bytes(width)))
        end = at + random.choice((width, width, 0))
        changed[at:end] = piece
    return bytes(changed)


def judge_file(content: bytes) -> Verdict:
    """Reading a file against what torch would do with it."""
    table = read(content)
    if isinstance(table, CheckpointError) or table.broken:
        return Verdict(REFUSED)
    judged = of_file(content)
    calls = [name for name in judged.imports if Global(*name) not in KNOWN]
    kind = UNSAFE if table.imports else READ
    if calls and not table.imports:
        return Verdict(kind, f"is called safe, and torch would import {calls}")
    if judged.error and not re.search(_UNREAD, judged.error):
        return Verdict(kind, f"is read, and torch refuses it: {judged.error}")
    if table.imports or table.faults or table.size_faults:
        return Verdict(kind)
    return Verdict(kind, table_fault(table, content))


def read(content: bytes) -> Table | CheckpointError:
    try:
        return parse("a.bin", PartialFile(len(content), (FilePart(0, content),) if content else ()))
    except CheckpointError as error:
        return error


TARGETS = {
    one.name: one
    for one in (
        Target(
            "torch-pickles",
            "a pickle is followed as CPython's unpickler in C runs it, or it has a fault",
            pickle_case,
            judge_pickle,
        ),
        Target(
            "torch-files",
            "what torch.load would unpickle is what is read, or the file is refused",
            file_case,
            judge_file,
        ),
    )
}
