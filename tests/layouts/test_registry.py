"""Which layout is asked, by what the config says and by what the tensors look like."""

from importlib import import_module

from auditor.layouts import METHODS


def test_the_table_of_methods_is_what_the_layouts_say_of_themselves():
    for file in dict.fromkeys(METHODS.values()):
        layout = import_module(f"auditor.layouts.{file}").LAYOUT
        assert {method for method, its in METHODS.items() if its == file} == set(layout.methods)
