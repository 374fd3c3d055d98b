"""What a RateLimit header means: huggingface_hub is the judge of those that a Hub sends."""

from huggingface_hub.utils import parse_ratelimit_headers
from hypothesis import given
from hypothesis import strategies as st

from auditor.downloader.retry import WINDOW, RateLimit, rate_limit

SPACE = st.sampled_from(["", " "])
KINDS = st.sampled_from(["api", "resolvers", "pages"])
COUNTS = st.integers(0, 200_000)


@st.composite
def headers(draw):
    """What the Hub sends, in any spacing and in any case of the names."""
    space = [draw(SPACE) for _ in range(4)]
    kind, left, reset = draw(KINDS), draw(COUNTS), draw(st.integers(0, WINDOW))
    one, two, three, four = space
    found = {
        "ratelimit": f'"{kind}"{one};{two}r={left}{three};{four}t={reset}',
        "ratelimit-policy": f'"fixed window";"{kind}";q={draw(COUNTS)};w=300',
    }
    names = draw(st.sampled_from([str.lower, str.upper, str.title]))
    return {names(name): value for name, value in found.items() if draw(st.booleans())}


@given(headers())
def test_the_hubs_headers_are_read_as_huggingface_hub_reads_them(given_headers):
    theirs = parse_ratelimit_headers(given_headers)
    ours = rate_limit(given_headers)
    assert (ours is None) == (theirs is None)
    if ours and theirs:
        assert ours == (
            theirs.resource_type,
            theirs.remaining,
            theirs.reset_in_seconds,
            theirs.limit,
        )


# Nearly a header: its own characters in any order, and digits without end.
PIECES = st.sampled_from(
    ['"', "api", ";", "r", "t", "q", "=", "0", "9" * 400, "9" * 5000, ",", " "]
)
NEARLY = st.lists(PIECES, max_size=12).map("".join) | st.text(max_size=40)


@given(limit=NEARLY, policy=NEARLY)
def test_the_text_of_a_server_is_bounded(limit, policy):
    found = rate_limit({"ratelimit": limit, "ratelimit-policy": policy})
    if found:
        assert 0 <= found.ask_again <= WINDOW
        assert found.ask_again <= found.reset <= 10**9
        assert 0 <= found.remaining <= 10**9
        assert found.quota is None or 0 <= found.quota <= 10**9


LIMITS = {
    "the Hub's": ('"api";r=0;t=55', RateLimit("api", 0, 55, None)),
    "without a kind": ("r=0;t=5", RateLimit(None, 0, 5, None)),
    "two windows": ('"api";r=1;t=2, "burst";r=3;t=4', RateLimit("api", 1, 2, None)),
    "a window of a year": ('"api";r=0;t=31536000', RateLimit("api", 0, 31_536_000, None)),
    "20 digits": ('"api";r=0;t=99999999999999999999', RateLimit("api", 0, 10**9, None)),
    "5,000 digits": ('"api";r=0;t=' + "9" * 5000, None),
    "a half": ('"api";r=0;t=5x', None),
    "nothing": ("", None),
}


def test_a_header_has_the_remaining_budget_and_its_end_or_nothing(subtests):
    for header, expected in LIMITS.values():
        with subtests.test(header=header, expected=expected):
            assert rate_limit({"ratelimit": header}) == expected


def test_a_policy_header_has_the_size_of_a_window(subtests):
    for policy, quota in [
        ('"fixed window";"api";q=500;w=300', 500),
        ('"api";q=500', 500),
        ('"api";q=' + "9" * 5000, None),
        ("q", None),
    ]:
        with subtests.test(policy=policy, quota=quota):
            found = rate_limit({"ratelimit": '"api";r=1;t=1', "ratelimit-policy": policy})
            assert found is not None
            assert found.quota == quota
