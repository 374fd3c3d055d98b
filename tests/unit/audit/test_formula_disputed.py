"""A closed form and an oracle that differ: what is said of it, tensor by tensor."""

from msgspec.structs import replace

from auditor.analytic import Expectation, ExpectedTensor, ModuleFormula, Role, Written
from auditor.audit.expected import formula_disputes
from auditor.findings import Severity
from auditor.findings.ignore import Ignore, split

A = ExpectedTensor("a.weight", (2, 3), 6)
B = ExpectedTensor("b.weight", (4,), 4)
TIED = ExpectedTensor("b.weight", (4,), 4, Role.TIED, "a.weight")
MASK = ExpectedTensor("mask", (4,), 4, Role.LEGACY)
STEPS = ExpectedTensor("steps", (), 1, Role.BUFFER)


def closed_form(*tensors: ExpectedTensor, parameters: int = 10) -> Expectation:
    return Expectation(
        target="Model",
        model_type="type",
        prefix="",
        by="closed-form",
        listed=Written(tensors=tensors, modules={"": ModuleFormula(parameters, str(parameters))}),
        parameters=parameters,
        formula=str(parameters),
        legend=(),
    )


def oracle(*tensors: ExpectedTensor, parameters: int = 10) -> Expectation:
    found = closed_form(*tensors, parameters=parameters)
    return replace(found, by="oracle", library="transformers 5")


def test_two_that_agree_dispute_nothing(subtests):
    for ours, theirs in [
        ((A, B), (A, B)),
        ((A, B), (B, A)),  # the order is no matter
        ((A, B, MASK), (A, B)),  # other versions stored it
        ((A, TIED, STEPS), (A, TIED, STEPS)),
    ]:
        with subtests.test(ours=ours, theirs=theirs):
            assert list(formula_disputes(closed_form(*ours), oracle(*theirs))) == []


def test_a_tensor_in_dispute_is_named_with_both_sides(subtests):
    for ours, theirs, name, parameters, reason in [
        ((A, B), (A,), "b.weight", 4, "the closed form has it, transformers 5 does not"),
        ((A,), (A, B), "b.weight", 4, "transformers 5 has it, the closed form does not"),
        ((A,), (A, MASK), "mask", 0, "transformers 5 has it, the closed form does not"),
        (
            (A,),
            (A._replace(shape=(3, 2)),),
            "a.weight",
            6,
            "(2, 3) by the closed form, (3, 2) by transformers 5",
        ),
        (
            (A, B),
            (A, TIED),
            "b.weight",
            4,
            "parameter by the closed form, tied to a.weight by transformers 5",
        ),
        (
            (A, TIED._replace(tied_to="c")),
            (A, TIED),
            "b.weight",
            0,
            "tied to c by the closed form, tied to a.weight by transformers 5",
        ),
        (
            (A, STEPS._replace(role=Role.LEGACY)),
            (A, STEPS),
            "steps",
            0,
            "legacy by the closed form, buffer by transformers 5",
        ),
    ]:
        with subtests.test(
            ours=ours, theirs=theirs, name=name, parameters=parameters, reason=reason
        ):
            [found] = formula_disputes(closed_form(*ours), oracle(*theirs))
            assert (found.names, found.parameters, found.reason) == ((name,), parameters, reason)
            assert (found.kind, found.severity, found.explains) == (
                "formula-disputed",
                Severity.WARNING,
                0,
            )


def test_tensors_with_the_same_dispute_are_one_finding() -> None:
    more = B._replace(name="b10.weight"), B._replace(name="b9.weight")
    [found] = formula_disputes(closed_form(A, *more), oracle(A))
    assert found.names == ("b9.weight", "b10.weight")


def test_a_disputed_total_is_reported_for_the_class() -> None:
    [found] = formula_disputes(closed_form(A, B), oracle(A, B, parameters=1011))
    assert (found.names, found.parameters) == (("Model",), 0)
    assert found.reason == "10 parameters by the closed form, 1,011 by transformers 5"


def test_a_dispute_can_be_ignored_by_the_names_of_tensors() -> None:
    found = tuple(formula_disputes(closed_form(A, B, MASK), oracle(MASK)))
    stand, ignored = split(found, (Ignore.parse("formula-disputed:a.*"),))
    assert [finding.names for finding in stand] == [("b.weight",)]
    assert [finding.names for finding in ignored] == [("a.weight",)]
