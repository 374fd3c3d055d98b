"""Answers without end, and headers of any length."""

import itertools
import threading
import time

import pytest
from huggingface_hub import constants
from support.raw_server import raw_server

from auditor.downloader import retry
from auditor.downloader.fetching import ignore_message
from auditor.downloader.http import Session
from auditor.downloader.model_argument import HubModel
from auditor.errors import Reason, SourceError

pytestmark = pytest.mark.slow  # it waits for what does not come

OK = b"HTTP/1.1 200 OK\r\n"
LENGTH, CHUNKED = b"Content-Length: 5\r\n", b"Transfer-Encoding: chunked\r\n"
CHUNKS = b"\r\n5\r\nhello\r\n0\r\n\r\n"
BODY = b"hello"


@pytest.fixture(scope="module")
def server():
    with raw_server() as running:
        yield running


@pytest.fixture(autouse=True)
def _hurried(machine):
    machine.setattr(constants, "HF_HUB_DOWNLOAD_TIMEOUT", 3)


def read(address, most=100):
    """The body, or why there is none."""
    session = Session(HubModel(id="o/n"), None, ignore_message)
    try:
        return session.get(str(address), lambda answer: answer.upto(most), purpose="a body")
    except SourceError as error:
        return error.reason, str(error)


REFUSED = {
    "both a Transfer-Encoding and|present": OK + LENGTH + CHUNKED + CHUNKS,
    "chunked": OK + b"Transfer-Encoding: gzip, chunked\r\n" + CHUNKS,
    "it changes to another protocol": b"HTTP/1.1 101 X\r\nContent-Length: 5\r\n\r\nhello",
}


def test_what_could_be_read_in_two_ways_is_refused(server, subtests):
    for words, reply in REFUSED.items():
        with subtests.test(words=words):
            reason, detail = read(server.address(reply, None))
            assert reason == Reason.BAD_RESPONSE
            assert any(word in detail for word in words.split("|"))


def test_a_refusal_with_a_limit_of_5000_digits_is_a_refusal(server):
    many = b'RateLimit: "api";r=' + b"9" * 5000 + b";t=1\r\n"
    reply = b"HTTP/1.1 429 Too Many Requests\r\n" + LENGTH + many + b"\r\n" + BODY
    assert read(server.address(reply, None))[0] == Reason.RATE_LIMITED


ENDLESS = {
    "100 Continue": (b"", b"HTTP/1.1 100 Continue\r\n\r\n" * 1000),
    "early hints": (b"", b"HTTP/1.1 103 Hints\r\nLink: x\r\n\r\n" * 1000),
    "chunks of a byte": (OK + CHUNKED + b"\r\n", b"1\r\nx\r\n" * 10_000),
}
MOST_WORK = 20.0  # seconds of processor time of client and server; the client alone would take 75


@pytest.mark.parametrize(("begin", "rest"), ENDLESS.values(), ids=ENDLESS)
def test_an_answer_without_end_costs_little_work_and_leaves_no_thread(begin, rest, server, machine):
    machine.setattr(constants, "HF_HUB_DOWNLOAD_TIMEOUT", 1)
    machine.setattr(retry, "MOST_SILENCE", 2.0)
    pieces = server.endless(lambda: itertools.chain([begin], itertools.repeat(rest)))
    since = time.process_time()
    reason, _ = read(pieces, most=10**8)
    assert reason in {Reason.BAD_RESPONSE, Reason.TIMED_OUT}
    assert time.process_time() - since < MOST_WORK
    for thread in threading.enumerate():
        if thread.name == "request":
            thread.join(30)
            assert not thread.is_alive()
