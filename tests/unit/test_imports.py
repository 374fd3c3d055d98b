"""No file imports another one that imports it, however far around; `make lint` holds the layers."""

from graphlib import TopologicalSorter

import grimp


def test_no_files_import_each_other_in_a_circle():
    graph = grimp.build_graph("auditor")
    imported = {module: graph.find_modules_directly_imported_by(module) for module in graph.modules}
    assert len(tuple(TopologicalSorter(imported).static_order())) == len(graph.modules)
