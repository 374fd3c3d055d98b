"""The walks of five people: the screens are those that were read, and hold what was published."""

from golden import WALKED
from support.walks import WALKS, screens

# Counted by hand in five public write-ups of BERT; the true figures of these, and two slips.
PUBLISHED = (
    *(109_482_240, 23_837_184, 85_054_464, 590_592, 85_645_056),  # base, uncased
    *(21_635_072, 2_048, 524_288, 22_163_456, 4_198_400, 8_393_728),  # large, V = 21,128
    *(12_596_224, 324_472_832),
    *(16_622_592, 613_256, 102_290_312),  # base, Chinese, with its head
    *(16_621_056, 28_348_416, 56_669_184, 38_400, 101_677_056),  # the same without
    *(102_267_648, 2_359_296, 56_623_104, 75_641_856),
)


def test_a_walk_prints_the_screens_that_were_read_by_a_person(subtests):
    for name in WALKS:
        with subtests.test(name=name):
            kept = (WALKED / f"{name}.txt").read_text(encoding="utf-8")
            assert screens(WALKS[name]) == kept, "if this is meant: make rewrite"


def test_no_walk_is_kept_that_nobody_takes():
    assert {path.stem for path in WALKED.iterdir()} == set(WALKS)


def test_every_published_count_comes_out_of_the_walk_of_a_student():
    kept = (WALKED / "student.txt").read_text(encoding="utf-8").split()
    assert {f"{count:,}" for count in PUBLISHED} <= set(kept)
