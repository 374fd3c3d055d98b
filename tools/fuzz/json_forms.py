"""JSON texts and what can be done to them: to their bytes, and to their tokens."""

import re
from random import Random

from fuzz.byte_changes import changed_bytes

_TOKEN = re.compile(rb'"(?:[^"\\]|\\.)*"|[-+.0-9eE]+|[a-z]+|[][{},:]|\s+|.', re.DOTALL)
# What a field may hold in place of what belongs there; numbers, strings and nesting at the bounds
# that Python, serde and this project have.
ODD = (
    *("-0", "0", "2", "0.0", "2.0", "1e0", "-1", "true", "null", '"2"', "01", "1.", "NaN"),
    *("-Infinity", "[]", "[0]", "[0,2]", "{}", "-", "+1", "1_0", "0x2", "9" * 25, "1e400"),
    *("18446744073709551615", "18446744073709551616", "9" * 320, "9" * 5000, "1e-400", '""'),
    *(
        '"\\ud800"',
        '"\\ud83d\\ude00"',
        '"\\udc00"',
        '"\\u0055"',
        '"\\x"',
        '"\t"',
        '"\x7f"',
        '"\\u0000"',
    ),
    *("[" * 126 + "]" * 126, "[" * 2000 + "]" * 2000, '{"x":' * 125 + "1" + "}" * 125, '"]]]["'),
    *('"../../etc/passwd"', '"/etc/passwd"', '"a\\\\b"', '"file:///x"', '"C:x"', '"a/./b"', '" "'),
    *('"=1+1"', '"<script>"', '"\\u001b[2J"', '"\\u202e"', '"model.safetensors"', '"__proto__"'),
)


def mutated(content: bytes, random: Random) -> bytes:
    """One to four changes to bytes or tokens."""
    for _ in range(random.choice((1, 1, 1, 2, 4))):
        content = random.choice((_tokens, _tokens, _tokens, _bytes))(content, random)
    return content


def _tokens(content: bytes, random: Random) -> bytes:
    tokens = _TOKEN.findall(content) or [b""]
    at = random.randrange(len(tokens))
    odd = random.choice(ODD).encode(errors="surrogatepass")
    match random.randrange(5):
        case 0:
            tokens[at] = odd
        case 1:
            del tokens[at]
        case 2:
            tokens.insert(at, random.choice((odd, random.choice(tokens))))
        case 3:
            tokens[at : at + 7] = tokens[at : at + 7] * 2
        case _:
            other = random.randrange(len(tokens))
            tokens[at], tokens[other] = tokens[other], tokens[at]
    return b"".join(tokens)


_ODD_BYTES = (b"\0", b"\xff", b"\xef\xbb\xbf", b'"', b"\\", b"\n")


def _bytes(content: bytes, random: Random) -> bytes:
    return changed_bytes(content, random, _ODD_BYTES)
