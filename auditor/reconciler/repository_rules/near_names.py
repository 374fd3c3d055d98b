"""Names that are one slip apart: a letter too many, too few, another one, or two exchanged."""

from collections.abc import Collection

_SHORTEST = 6  # letters; shorter names are one slip from many others


def near(name: str, known: Collection[str]) -> str | None:
    """The one known name that is a slip away; None: there is none, or the name is too short."""
    if len(name) < _SHORTEST or len(name) > 80:  # noqa: PLR2004 - no key is longer
        return None
    found = sorted(other for other in known if _one_slip(name, other))
    return found[0] if found else None


def _one_slip(one: str, other: str) -> bool:
    short, long = sorted((one, other), key=len)
    if one == other or len(long) - len(short) > 1 or len(short) < _SHORTEST - 1:
        return False
    at = next((i for i, (a, b) in enumerate(zip(short, long, strict=False)) if a != b), len(short))
    if len(short) < len(long):
        return short[at:] == long[at + 1 :]
    exchanged = short[at : at + 2] == long[at : at + 2][::-1] and short[at + 2 :] == long[at + 2 :]
    return exchanged or short[at + 1 :] == long[at + 1 :]
