"""What the client makes of a server's bytes, held to http.client, however they are cut up."""

import http.client
import itertools
import threading

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.raw_server import raw_server

from auditor.downloader.client import new_client
from auditor.downloader.hub_settings import plain_url
from auditor.errors import SourceError, UsageError

OK = b"HTTP/1.1 200 OK\r\n"
LENGTH = b"Content-Length: 5\r\n"
BODY = b"hello"
SILENCE = 10.0  # seconds
CHUNKED = b"Transfer-Encoding: chunked\r\n"

REPLIES = {
    "with a length": OK + LENGTH + b"\r\n" + BODY,
    "with an odd reason": b"HTTP/1.1 404 Nobody kn\xf6ws\r\n" + LENGTH + b"\r\n" + BODY,
    "with headers twice": OK + LENGTH + b"X-A: 1\r\nx-a: 2\r\n\r\n" + BODY,
    "in chunks": OK + CHUNKED + b"\r\n2\r\nhe\r\n3;x=y\r\nllo\r\n0\r\n\r\n",
    "in chunks with a trailer": OK + CHUNKED + b"\r\n5\r\nhello\r\n0\r\nX-A: late\r\n\r\n",
    "to the connection's end": OK + b"\r\n" + BODY,
    "that closes": OK + LENGTH + b"Connection: close\r\n\r\n" + BODY,
    "of old": b"HTTP/1.0 200 OK\r\n" + LENGTH + b"\r\n" + BODY,
    "without a body": b"HTTP/1.1 204 No Content\r\n\r\n",
    "after a 100": b"HTTP/1.1 100 Continue\r\nX-A: no\r\n\r\n" + OK + LENGTH + b"\r\n" + BODY,
}
BROKEN = {
    "nothing": b"",
    "no HTTP": b"SSH-2.0-OpenSSH_9.6\r\n",
    "half a head": OK + b"Content-Le",
    "a length that is none": OK + b"Content-Length: five\r\n\r\nhello",
    "two lengths": OK + b"Content-Length: 5\r\nContent-Length: 6\r\n\r\nhello!",
    "a short body": OK + LENGTH + b"\r\nhell",
    "a chunk of no size": OK + CHUNKED + b"\r\nz\r\nhello\r\n",
    "another protocol": b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\n\r\n",
    "a folded header": OK + LENGTH + b"X-A: 1\r\n 2\r\n\r\n" + BODY,
    "headers of 2 MB": OK + b"X-A: " + b"x" * 2_000_000 + b"\r\n\r\n",
    "interim answers alone": b"HTTP/1.1 100 Continue\r\n\r\n" * 5000,
}


@pytest.fixture(scope="module")
def server():
    with raw_server() as running:
        yield running


@pytest.fixture
def client():
    return new_client(SILENCE)


@pytest.fixture(scope="module")
def one_client():
    """To make one takes 10 ms."""
    return new_client(SILENCE)


def read(client, address, **headers):
    reply = client.ask(address, {"user-agent": "tests", **headers}, SILENCE)
    try:
        return reply.status, dict(reply.headers), b"".join(reply.pieces())
    finally:
        reply.close()


def read_by_the_library(address):
    connection = http.client.HTTPConnection(address.host_str, address.port)
    connection.request("GET", address.path)
    response = connection.getresponse()
    headers = {}
    for name, value in response.getheaders():
        headers.setdefault(name.lower(), []).append(value.strip())  # RFC 9110, 5.5
    joined = {name: ", ".join(values) for name, values in headers.items()}
    answer = response.status, joined, response.read()
    connection.close()
    return answer


@given(data=st.data())
@pytest.mark.parametrize("reply", REPLIES.values(), ids=REPLIES)
def test_a_reply_is_parsed_as_http_client_parses_it_wherever_it_is_cut(
    reply, server, one_client, data
):
    cuts = sorted(data.draw(st.lists(st.integers(0, len(reply)), max_size=4)))
    pieces = [reply[a:b] for a, b in itertools.pairwise((0, *cuts, len(reply)))]
    ours = read(one_client, server.address(*pieces, None), connection="close")
    assert ours == read_by_the_library(server.address(reply, None))


def test_what_is_no_reply_is_an_error_and_its_connection_is_not_used_again(
    subtests, server, client
):
    for reply in BROKEN.values():
        with subtests.test(reply=reply):
            with pytest.raises(SourceError):
                read(client, server.address(reply, None))
            port = server.asked[-1][1]
            read(client, server.address(REPLIES["with a length"]))
            assert server.asked[-1][1] != port


def connections(server, client, *replies):
    """How many connections it takes to ask for these, one after the other."""
    since = len(server.asked)
    for reply in replies:
        read(client, server.address(*reply))
    return len({port for _, port in server.asked[since:]})


def test_a_connection_serves_again_after_a_body_that_was_read(server, client):
    whole = [(REPLIES[name],) for name in ("with a length", "in chunks", "without a body")]
    assert connections(server, client, *whole, *whole) == 1


def test_a_connection_that_is_to_be_closed_is_not_used_again(subtests, server, client):
    for name in ["that closes", "of old"]:
        with subtests.test(name=name):
            assert connections(server, client, (REPLIES[name],), (REPLIES["with a length"],)) == 2


def test_an_unrequested_answer_is_ignored(server, client):
    forged = OK + b"Content-Length: 6\r\n\r\nforged"
    first = read(client, server.address(REPLIES["with a length"] + forged))
    assert first[2] == BODY
    assert read(client, server.address(REPLIES["with a length"], None))[2] == BODY


def test_a_body_that_was_left_half_read_takes_its_connection_with_it(server, client):
    address = server.address(OK + b"Content-Length: 200000\r\n\r\n", b"x" * 200_000)
    reply = client.ask(address, {}, SILENCE)
    next(reply.pieces())
    reply.close()
    assert read(client, server.address(REPLIES["with a length"], None))[2] == BODY


def test_a_body_is_had_as_it_comes(server, client):
    """Headers do not wait for the body, nor one piece for the next."""
    asked_for = {b"a": threading.Event(), b"b": threading.Event()}

    def pieces():
        yield OK + b"Content-Length: 2\r\n\r\n"
        for piece, event in asked_for.items():
            assert event.wait(60)
            yield piece

    reply = client.ask(server.endless(pieces), {}, SILENCE)
    for piece, event in asked_for.items():
        event.set()
        assert bytes(next(reply.pieces())) == piece
    reply.close()


def test_a_header_beyond_ascii_is_left_out(server, client):
    odd = OK + LENGTH + b"X-A: caf\xe9\r\nX-B: 1\r\n\r\n" + BODY
    assert read(client, server.address(odd, None))[1] == {"content-length": "5", "x-b": "1"}


def test_whatever_an_address_holds_it_is_one_request(subtests, server, client):
    for target in ["/a\r\nX-B: 1", "/\u00e9 b"]:
        with subtests.test(target=target):
            since = len(server.asked)
            server.otherwise(REPLIES["with a length"])
            read(client, plain_url(f"{server.address().origin_ascii}{target}"))
            [(path, _)] = server.asked[since:]
            assert path.isascii()
            assert not set(path) & set(" \r\n")


def test_a_header_that_would_be_more_than_one_is_not_sent(subtests, server, client):
    for value in ["Bearer x\r\nX-B: 1", "\0"]:
        with subtests.test(value=value):
            since = len(server.asked)
            with pytest.raises(UsageError, match="a header's value cannot be sent") as raised:
                client.ask(server.address(), {"authorization": value}, SILENCE)
            assert value not in str(raised.value)
            assert len(server.asked) == since
