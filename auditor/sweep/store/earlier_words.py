"""What a store of an earlier version keeps, in the words of this one. Pure.

A text is looked through as bytes and not parsed: names and texts of strangers stand in strings,
whose quotes JSON escapes, so that no string looks like a key and its value.
"""

import re
import zlib

from auditor.sweep.store.packing import compress_text, decompress_text

# Kinds of findings, statuses of modules, and the dtype that scales are counted under.
_RENAMED = {
    b"absent": b"missing-component",
    b"bad-layout": b"bad-quantization",
    b"beside": b"other-weights",
    b"bookkeeping": b"quantization-data",
    b"disputed": b"formula-disputed",
    b"mis-shaped": b"mismatched",
    b"new": b"newly-initialized",
    b"twin": b"copy-differs",
}
_WORD = re.compile(rb'("(?:kind|status|dtype)"\s*:\s*")(%s)(?=")' % b"|".join(_RENAMED))
_KEYS = (
    (re.compile(rb'"from"(?=\s*:\s*(?:null|"closed-form"|"oracle"))'), b'"by"'),
    (re.compile(rb'"twins"(?=\s*:\s*\[)'), b'"torch_copies"'),
)


def reworded(content: bytes) -> bytes:
    """A packed outcome or snapshot of version 2, or what several have in common, as of version 3.

    One that is damaged stays as it is: who reads it says so.
    """
    try:
        text = decompress_text(content)
    except zlib.error:
        return content
    found = _WORD.sub(lambda match: match[1] + _RENAMED[match[2]], text)
    for key, name in _KEYS:
        found = key.sub(name, found)
    return content if found == text else compress_text(found)
