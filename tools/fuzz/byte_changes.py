"""A change of a few bytes, wherever they are, for a format of any kind."""

from collections.abc import Sequence
from random import Random


def changed_bytes(content: bytes, random: Random, odd: Sequence[bytes]) -> bytes:
    """Replace, insert or delete a few bytes, or cut the rest off; `odd`: what the format minds."""
    changed = bytearray(content)
    at = random.randrange(len(changed) + 1)
    match random.randrange(6):
        case 0:
            changed[at : at + 1] = random.randbytes(1)
        case 1:
            changed[at : at + 1] = random.choice(odd)
        case 2:
            changed[at:at] = random.randbytes(random.randrange(1, 4))
        case 3:
            changed[at:at] = random.choice(odd)
        case 4:
            del changed[at : at + random.randrange(1, 9)]
        case _:
            del changed[at:]
    return bytes(changed)
