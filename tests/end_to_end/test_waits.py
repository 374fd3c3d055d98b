"""What `audit` says while it waits: to a log, to a terminal, and to nobody."""

import json
import re

import pytest
from support.builders import safetensors_bytes
from support.examples import one_in
from support.hub import Drip, Late, Quota, Says, TooMany
from support.raw_server import raw_server
from support.running import at_a_terminal, shown, started
from support.sweep_models import healthy

API, LIST = "/api/models/*", "/api/models"
BUSY = "127.0.0.1 answered 429, too many requests"


@pytest.fixture
def model(hub):
    hub.add("o/n", healthy(1))
    return hub


@pytest.fixture
def sweep(tmp_path):
    """The arguments of a sweep of all that there is."""
    return ("sweep", "--author", "o", "--store", str(tmp_path / "s.sqlite"), "--processes", "1")


def said(*args, env):
    process = started(*args, env=env)
    _, lines = process.communicate()
    return process.returncode, lines


def counted_down(sent, why):
    """The seconds that a terminal showed of a wait, one after the other."""
    found = (re.fullmatch(rf".*{re.escape(why)}; waiting (\d+) s.*", line) for line in shown(sent))
    seconds = [int(one[1]) for one in found if one]
    return [second for at, second in enumerate(seconds) if seconds[at - 1 : at] != [second]]


def counts_down_from(first, seconds):
    """Whether it begins there and goes on downwards, however busy this machine is."""
    return seconds[0] == first and len(seconds) > 1 and seconds == sorted(seconds, reverse=True)


REFUSED = {
    "RateLimit": TooMany(reset=2),
    "Retry-After": TooMany(retry_after=2),
    "503": Says(status=503, headers=(("Retry-After", "2"),)),
    "without a policy": Says(status=429, headers=(("RateLimit", "r=0;t=2"),)),
}


def test_a_log_has_one_line_of_a_wait_with_the_seconds_that_are_waited(subtests, model, hub_env):
    for name in one_in(2, REFUSED):
        with subtests.test(name=name):
            model.misbehave(fault=REFUSED[name], path=API, times=1)
            code, lines = said("o/n", env=hub_env)
            assert code == 0
            assert re.fullmatch(
                r"audit: 127\.0\.0\.1 answered (429|503)[\w, ]+; waiting 2 s\n", lines
            )


def test_a_terminal_counts_down_on_one_line_that_is_gone_afterwards(model, hub_env):
    model.misbehave(fault=TooMany(reset=2), path=API, times=1)
    code, sent = at_a_terminal("o/n", env=hub_env)
    assert code == 0
    assert counts_down_from(2, counted_down(sent, BUSY))
    assert "\n" not in sent
    assert sent.endswith("\r\x1b[K")


def test_what_a_server_calls_its_refusal_moves_nothing_on_a_terminal(hub_env):
    reply = b"HTTP/1.1 503 \x9b2J\x9d0;me\x9c\r\nRetry-After: 60\r\nContent-Length: 0\r\n\r\n"
    with raw_server() as server:
        server.otherwise(reply, None)
        endpoint = f"http://127.0.0.1:{server.server_address[1]}"
        process = started("o/n", env={**hub_env, "HF_ENDPOINT": endpoint})
        line = process.stderr.readline()
        process.kill()
        process.communicate()
    assert line.endswith("; waiting 60 s\n")
    assert line.removesuffix("\n").isprintable()


def test_quiet_hides_a_wait(model, hub_env):
    model.misbehave(fault=TooMany(reset=2), path=API, times=1)
    assert said("o/n", "--quiet", env=hub_env) == (0, "")


def test_a_sweep_reports_a_wait_during_selection(model, hub_env, sweep):
    model.misbehave(fault=TooMany(reset=2), path=LIST, times=1)
    code, lines = said(*sweep, env=hub_env)
    assert code == 0
    assert f"audit: {BUSY}; waiting 2 s\n" in lines


def test_a_sweep_reports_a_spent_window_and_continues_after_it(hub, hub_env, sweep):
    for number in range(12):
        hub.add(f"o/m{number}", healthy(number))
    hub.limit(Quota(resolvers=12, window=5))
    code, lines = said(*sweep, env=hub_env)
    assert code == 0
    assert re.search(r"audit: the budget of requests for files is spent; waiting \d s\n", lines)
    assert "12 models (12 clean)" in lines
    assert 429 not in {record.status for record in hub.log}


def test_a_terminal_shows_how_many_headers_are_read(hub, hub_env):
    shards = {f"model-{n:05}-of-00100.safetensors": f"t{n}" for n in range(1, 101)}
    content = {name: safetensors_bytes({tensor: ("F32", (2,))}) for name, tensor in shards.items()}
    index = {"weight_map": {tensor: name for name, tensor in shards.items()}}
    config = {"config.json": b"{}", "model.safetensors.index.json": json.dumps(index).encode()}
    hub.add("o/many", {**config, **content})
    hub.misbehave(fault=Drip(piece=64, seconds=0.3), path="/xet/*")
    _, sent = at_a_terminal("o/many", env=hub_env)
    lines = [line for line in shown(sent) if "headers read" in line]
    assert lines
    assert all(re.search(r"\d+ of 100 headers read, 0\.\d MB; \d+ s left", one) for one in lines)
    _, quiet = at_a_terminal("o/many", "--quiet", env=hub_env)
    assert "headers read" not in quiet
    assert "headers read" not in said("o/many", env=hub_env)[1]


def test_a_terminal_shows_after_a_second_that_the_hub_is_slow(subtests, hub, hub_env):
    for slow in [API, "*/model.safetensors"]:
        with subtests.test(slow=slow):
            hub.clear()
            hub.add("o/n", {**healthy(1), "generation_config.json": b"{}"})
            hub.misbehave(fault=Late(seconds=2.2), path=slow, times=1)
            code, sent = at_a_terminal("o/n", env=hub_env)
            assert (code, set(shown(sent))) == (0, {"audit: waiting for the Hub"})
            assert sent.endswith("\r\x1b[K")
