"""The law of torch files: whatever runs is unsafe, and what is called sound torch loads."""

import re
from collections.abc import Iterable
from random import Random

from auditor.bounded.pickle_machine import follow_pickle
from auditor.bounded.pickle_names import is_known, renamed
from auditor.containers.torch_file import parse
from auditor.containers.weight_formats import FilePart, PartialFile, Table, UnsafeFileError
from auditor.errors import CheckpointError
from fuzz import archives, programs
from fuzz.hostile_files import hostile_files, legacy
from fuzz.judges import of_file, of_pickle
from fuzz.loaded import table_fault
from fuzz.target import READ, REFUSED, UNSAFE, Target, Verdict

# Faults of entries beside the pickle, which torch's reader finds in their own headers and content.
# The audit reads the directory alone there.
_UNREAD = (
    r"failed reading file (?!data\.pkl)|Couldn't parse the version|version \d+ of PyTorch|"
    r"supported version for reading|codec can't decode|storage has wrong byte size|"
    r"Unknown endianness|invalid literal for int"
)

# --- one pickle -------------------------------------------------------------------------------


def pickle_case(random: Random) -> bytes:
    return programs.mutated(random.choice(programs.pickles()), random)


def judge_pickle(data: bytes) -> Verdict:
    """Compare following a pickle with CPython's unpickler, over both kinds of stream."""
    followed = follow_pickle(data)
    if followed.outside or (followed.fault and followed.fault.may_go_on):
        return Verdict(UNSAFE)
    kind = REFUSED if followed.fault else READ
    faults = (_runs(judged.imports) for judged in of_pickle(data))
    return Verdict(kind, next((fault for fault in faults if fault), None))


def _runs(imports: Iterable[tuple[str, str]]) -> str | None:
    unknown = [name for name in imports if not is_known(renamed(*name))]
    return f"is not called unsafe, and an unpickler imports {unknown}" if unknown else None


# --- a file -----------------------------------------------------------------------------------


def file_case(random: Random) -> bytes:
    """Change a file of torch.save: its bytes, its pickle or its archive; or take a hostile one."""
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
    """Write a file of torch.save again, with its storages and a changed pickle."""
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
    """Change bytes of the structure: near the ends, at marks, and anywhere."""
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
    """Compare reading a file with what torch does with it."""
    table = read(content)
    if isinstance(table, UnsafeFileError) or (isinstance(table, Table) and table.imports):
        return Verdict(UNSAFE)
    kind = READ if isinstance(table, Table) else REFUSED
    judged = of_file(content)
    if fault := _runs(judged.imports):
        return Verdict(kind, fault)
    if not isinstance(table, Table) or table.faults or table.size_faults:
        return Verdict(kind)
    if judged.error:
        unread = re.search(_UNREAD, judged.error)
        return Verdict(kind, None if unread else f"is called sound: {judged.error}")
    fault = table_fault(table, content)
    return Verdict(kind, None if fault and re.search(_UNREAD, fault) else fault)


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
            "a pickle from which CPython's unpickler in C imports another name is called unsafe",
            pickle_case,
            judge_pickle,
        ),
        Target(
            "torch-files",
            "a file that runs something is called unsafe, and torch loads one that is called sound",
            file_case,
            judge_file,
        ),
    )
}
