"""Lists of any length, and lists without end, through the real command."""

import itertools
import re
import subprocess
import sys
from tempfile import TemporaryDirectory

import pytest
from benching.list_server import Page, all_different, entry, serving, serving_apart
from support.running import run

PLAN = ("sweep", "--author", "bench", "--plan")


def ended(env, url, *args):
    with TemporaryDirectory() as folder:  # without a store
        done = run(*args, env={**env, "HF_ENDPOINT": url}, cwd=folder)
    return done.returncode, done.stdout, done.stderr


def listed(*names):
    return f"[{','.join(map(entry, names))}]".encode()


def every_other_address(body):
    """A list that goes on for ever, each page under an address of its own."""
    return lambda cursor: Page(body, str(int(cursor or 0) + 1))


def turned(cursor):
    """Models that come again and again in another order."""
    number = int(cursor or 0)
    names = [f"bench/m{(number + at) % 3}" for at in range(3)]
    return Page(listed(*names), str(number + 1))


NUMBERS = itertools.count()


def one_address(_cursor):
    return Page(listed(f"bench/m{next(NUMBERS)}"), "1")


ENDLESS = {
    "the same page": (every_other_address(listed("bench/m")), "page 2 .*has no new model"),
    "another order": (turned, "page 2 .*has no new model"),
    "an empty page": (every_other_address(b"[]"), "page 1 .*has no new model"),
    "no model": (every_other_address(b'[{"id": 5}]'), "page 1 .*has no new model"),
    "the same address": (one_address, "is circular: .*"),
}


@pytest.mark.parametrize(("lists", "why"), ENDLESS.values(), ids=ENDLESS)
def test_a_list_without_end_ends_with_a_line(lists, why, hub_env):
    with serving(lists) as url:
        code, out, said = ended(hub_env, url, *PLAN, "--top", "9")
    assert (code, out) == (3, "")
    assert re.fullmatch(rf"audit: bad-response: .*{why}\n", said)


def test_top_ends_a_list_of_new_models_without_end(hub_env):
    with serving(all_different(sys.maxsize, page=2)) as url:
        code, out, _ = ended(hub_env, url, *PLAN, "--top", "9")
    assert code == 0
    assert out.startswith("9 models, 9 to fetch: ")


def test_pages_are_bounded_and_lists_are_not(hub_env):
    """Ninety pages, together more than one model, or one page, may have."""
    much = f'"tags":["{"x" * 5000}"]}}'
    template = listed(*(f"@-{number}" for number in range(200))).replace(
        b"]}", f"],{much}".encode()
    )
    assert 90 * len(template) > 64 * 1024 * 1024

    def made(cursor):
        number = int(cursor or 0)
        following = str(number + 1) if number < 89 else None
        return Page(template.replace(b"@", b"b/%d" % number), following)

    with serving(made) as url:
        code, out, said = ended(hub_env, url, *PLAN)
    assert code == 0, said
    assert out.startswith("18,000 models, ")


# In a process of its own, where no other thread makes anything.
MEASURE = """
import tracemalloc
from auditor.sweep.settings import Policy
from auditor.sweep.selection import Selector
from auditor.sweep.settings import ModelSelection
from auditor.sweep.rate_limits import RateLimiter
with Selector(Policy(), None, RateLimiter()) as selector:
    tracemalloc.start()
    found = sum(len(page) for page in selector.pages(ModelSelection(author="bench")))
    print(found, tracemalloc.get_traced_memory()[1])
"""


def test_the_memory_of_a_list_does_not_grow_with_it(hub_env):
    def most(pages):
        with serving_apart(20 * pages, page=20) as url:
            command = [sys.executable, "-c", MEASURE]
            env = {**hub_env, "HF_ENDPOINT": url}
            said = subprocess.check_output(command, env=env, text=True)  # noqa: S603 - our own
        found, peak = map(int, said.split())
        assert found == 20 * pages
        return peak

    # A page that is kept takes 25 kB, its two digests 300 bytes, and cycles that nobody has
    # collected yet some hundred kB in all.
    assert most(150) - most(20) < 130 * 5000


def test_too_many_files_of_one_model_affect_only_that_model(hub_env):
    crowd = entry("bench/crowd").replace("[", "[" + '{"rfilename":"x"},' * 200_000)
    page = f"[{entry('bench/m1')},{crowd},{entry('bench/m2')}]".encode()
    with serving(lambda _: Page(page)) as url:
        code, out, said = ended(hub_env, url, *PLAN)
    assert (code, said) == (0, "")
    assert out.startswith("3 models, 3 to fetch: ")
