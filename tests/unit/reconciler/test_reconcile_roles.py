"""What becomes of tensors that are no plain parameters, stored and not."""

from support.checkpoints import stored

from auditor.analytic import Expectation, ExpectedTensor, ModuleFormula, Role, Written
from auditor.analytic.catalogue import Sibling
from auditor.reconciler.contents import Contents
from auditor.reconciler.reconcile import FamilyExpectations, reconcile
from auditor.walker import walk

TENSORS = {
    "norm.weight": ExpectedTensor("norm.weight", (3,), 3),
    "norm.running_mean": ExpectedTensor("norm.running_mean", (3,), 3, Role.BUFFER),
    "mask": ExpectedTensor("mask", (2, 2), 4, Role.LEGACY),
    "draft.weight": ExpectedTensor("draft.weight", (5,), 5, Role.EXTRA),
}


def expectation(*names: str, target: str = "Target") -> Expectation:
    return Expectation(
        target=target,
        model_type="type",
        prefix="",
        by="closed-form",
        listed=Written(
            tensors=tuple(TENSORS[name] for name in names),
            modules={"": ModuleFormula(3, "3")},
        ),
        parameters=3,
        formula="3",
        legend=(),
    )


def findings(shapes, expected=None):
    """Kind -> (names, parameters); every report's findings explain its difference."""
    whole = expectation(*TENSORS)
    expected = expected or whole
    sibling = Sibling(whole.target, whole.prefix, {one.name: one for one in whole.tensors})
    result = reconcile(
        Contents(tensors=[stored(name, shape) for name, shape in shapes.items()]),
        expected,
        FamilyExpectations(declared=expected, siblings=lambda: (sibling,)),
    )
    difference = walk(result.counted).total.parameters - expected.parameters
    assert difference == sum(finding.explains for finding in result.findings)
    found: dict[str, tuple[tuple[str, ...], int]] = {}
    for finding in result.findings:
        names, parameters = found.get(finding.kind, ((), 0))
        found[finding.kind] = (names + finding.names, parameters + finding.parameters)
    return found


PLAIN = {"norm.weight": (3,), "norm.running_mean": (3,)}


def test_a_tensor_is_found_as_its_role_has_it(subtests):
    for shapes, expected in [
        (PLAIN, {"buffer": (("norm.running_mean",), 0)}),
        ({"norm.weight": (3,)}, {"missing": (("norm.running_mean",), 0)}),
        (
            {"norm.weight": (3,), "norm.running_mean": (4,)},
            {"mismatched": (("norm.running_mean",), 0)},
        ),
        (PLAIN | {"mask": (9, 9)}, {"buffer": (("mask", "norm.running_mean"), 0)}),
        (
            PLAIN | {"draft.weight": (5,)},
            {"buffer": (("norm.running_mean",), 0), "unused": (("draft.weight",), 5)},
        ),
        (
            {"norm.weight": (4,), "norm.running_mean": (3,)},
            {"buffer": (("norm.running_mean",), 0), "mismatched": (("norm.weight",), 3)},
        ),
    ]:
        with subtests.test(shapes=shapes):
            found = findings(shapes)
            assert found == expected


def test_rules_of_a_sibling_class_hold_for_the_target():
    found = findings(
        PLAIN | {"mask": (2, 2), "draft.weight": (5,)},
        expectation("norm.weight", target="Other"),
    )
    assert found["unused"] == (("draft.weight",), 5)
    assert set(found) == {"unused", "buffer"}


def test_an_extra_tensor_is_unused_by_every_class_here():
    result = reconcile(
        Contents(tensors=[stored("norm.weight", (3,)), stored("draft.weight", (5,))]),
        expectation("norm.weight", "draft.weight"),
        FamilyExpectations(declared=expectation("norm.weight"), siblings=tuple),
    )
    (unused,) = result.findings
    assert unused.used_by == ()
    assert unused.reason == "Target does not use it; no class here does, other software may"
