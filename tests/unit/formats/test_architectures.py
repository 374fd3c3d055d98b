"""The table of what is known."""

from auditor.formats import architectures


def test_what_is_known_by_name_stands_below_the_table():
    text = architectures.render({"bert": ("BertModel",)}, ("paper-a", "paper-b"), 80, color=False)
    *_, sums, papers = text.splitlines()
    assert sums == "1 model types, 1 classes, each from a closed form."
    assert papers == "Known by name, for audit explain: paper-a, paper-b."
