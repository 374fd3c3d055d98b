"""Whether a list ends is found out in memory that does not grow with it."""

import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st

from auditor.downloader.model_list import ListWalk
from auditor.errors import Reason, SourceError

PAGE = st.frozensets(st.integers(0, 99).map(str), min_size=1, max_size=9)


@given(st.lists(PAGE, max_size=20))
def test_pages_of_new_models_are_walked_to_the_end(pages):
    walk = ListWalk()
    for number, ids in enumerate(pages):
        walk.record_address(f"/{number}")
        walk.record_ids([*(f"{number}/{name}" for name in ids), *(f"all/{name}" for name in ids)])


@given(st.lists(PAGE, min_size=1, max_size=20), st.randoms())
def test_a_page_that_comes_again_ends_the_list_in_whatever_order(pages, draw):
    walk = ListWalk()
    for number, ids in enumerate(pages):
        walk.record_address(f"/{number}")
        walk.record_ids(f"{number}/{name}" for name in ids)
    number = draw.randrange(len(pages))
    again = [f"{number}/{name}" for name in pages[number]]
    draw.shuffle(again)
    walk.record_address("/again")
    with pytest.raises(SourceError, match=rf"page {len(pages) + 1} .*has no new model") as raised:
        walk.record_ids(again)
    assert raised.value.reason is Reason.BAD_RESPONSE


@pytest.mark.parametrize("ids", [[], ["a"], ["b", "a"]], ids=str)
def test_a_page_of_models_of_the_page_before_ends_the_list(ids):
    walk = ListWalk()
    walk.record_address("/1")
    walk.record_ids(["a", "b", "c"])
    walk.record_address("/2")
    with pytest.raises(SourceError, match=r"page 2 .*has no new model"):
        walk.record_ids(ids)


def test_a_first_page_without_a_model_ends_the_list():
    walk = ListWalk()
    walk.record_address("/1")
    with pytest.raises(SourceError, match=r"page 1 .*has no new model"):
        walk.record_ids([])


def test_an_address_that_comes_again_ends_the_list():
    walk = ListWalk()
    walk.record_address("/1")
    with pytest.raises(SourceError, match="is circular"):
        walk.record_address("/1")


def test_a_list_has_so_many_pages_and_no_more():
    walk = ListWalk(most=3)
    for number in range(3):
        walk.record_address(f"/{number}")
    with pytest.raises(SourceError, match=r"more than 3 pages; select fewer") as raised:
        walk.record_address("/3")
    assert raised.value.reason is Reason.TOO_LARGE


def test_a_page_that_was_walked_takes_two_digests():
    tracemalloc.start()
    walk = ListWalk()
    for number in range(3000):
        walk.record_address(f"/api/models?cursor={number:0200}")
        walk.record_ids(f"o/{number}-{name}" for name in range(5))
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert most < 3000 * 400
