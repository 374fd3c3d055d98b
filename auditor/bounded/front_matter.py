"""The YAML front matter of a model card, which is untrusted text."""

import re

MAX_FRONT_MATTER = 64 * 1024  # bytes of a README.md in which the front matter must end
_DEEPEST = 20  # collections inside each other
_BLOCK = re.compile(
    rb"\A(?:\xef\xbb\xbf)?---[ \t]*\r?\n(.*?)^---[ \t]*\r?$", re.DOTALL | re.MULTILINE
)


def front_matter(start: bytes) -> object:
    """Return the value of the front matter at the start of a README.md; None if it is not usable.

    Aliases, which can stand for gigabytes, and tags are refused, as is deep nesting.
    """
    import yaml  # noqa: PLC0415 - 40 ms, few audits read a model card

    block = _BLOCK.search(start[:MAX_FRONT_MATTER])
    if block is None:
        return None
    depth = 0
    try:
        text = block[1].decode()
        for event in yaml.parse(text, yaml.SafeLoader):
            depth += isinstance(event, yaml.CollectionStartEvent)
            depth -= isinstance(event, yaml.CollectionEndEvent)
            is_alias = isinstance(event, yaml.AliasEvent)
            if is_alias or depth > _DEEPEST or getattr(event, "tag", None) is not None:
                return None
        return yaml.safe_load(text)
    except (yaml.YAMLError, ValueError, ArithmeticError):  # malformed numbers and dates, too
        return None
