"""Files that were not opened have room for the tensors of the config."""

from support.four_tensors import WHOLE

from auditor.checkpoint.snapshot import RepoFile
from auditor.findings import BadSize, WrongDtype
from auditor.reconciler.other_model import listed_size_rule


def test_an_unopened_file_has_room_for_the_expected_shapes(subtests):
    for size, declared, found in [
        (44 * 4 + 300, "F32", []),
        (44 * 4 + 300, "BF16", []),  # room for buffers
        (44 * 2 + 50, "F32", [(WrongDtype, "2 for each of 44 parameters and 50 around them")]),
        (40, "F32", [(BadSize, "fewer than the 176 that 44 parameters take in F32: -136")]),
        (None, "F32", []),
        (40, None, []),
    ]:
        with subtests.test(size=size):
            files = [
                RepoFile(name="other.h5", size=1),
                RepoFile(name="model.safetensors", size=size),
            ]
            findings = list(listed_size_rule(files, WHOLE, declared))
            assert [type(one) for one in findings] == [kind for kind, _ in found]
            for one, (_, words) in zip(findings, found, strict=True):
                assert words in one.reason
