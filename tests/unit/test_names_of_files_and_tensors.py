"""Parts of paths, and numbers in names of tensors."""

from hypothesis import given
from hypothesis import strategies as st

from auditor.names.parts import file_name, folder_of, number_in_list, number_of


@given(st.text(alphabet="ab/.", max_size=12))
def test_a_path_is_its_folder_and_its_file(path):
    assert folder_of(path) + file_name(path) == path
    assert "/" not in file_name(path)
    assert folder_of(path) in {"", path[: path.rfind("/") + 1]}


def test_a_segment_is_a_number_if_it_is_of_a_model_s_size(subtests):
    for segment, number in [
        ("0", 0),
        ("12", 12),
        ("999999", 999_999),
        ("1000000", None),
        ("", None),
        ("-1", None),
        ("٣", None),
    ]:
        with subtests.test(segment=segment, number=number):
            assert number_of(segment) == number


def test_the_number_in_a_list_is_the_one_after_its_name(subtests):
    for name, module_list, number in [
        ("h.3.ln.weight", "h", 3),
        ("model.layers.12.mlp.experts.5.w1", "model.layers", 12),
        ("model.layers.12.mlp.experts.5.w1", "experts", 5),
        ("model.norm.weight", "model.layers", None),
        ("model.layers.weight", "model.layers", None),
    ]:
        with subtests.test(name=name, module_list=module_list, number=number):
            assert number_in_list(name, module_list) == number
