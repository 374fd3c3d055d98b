"""other-class: another class of the same model type, or of its language model, fits exactly.

To do: Declare in `architectures` the class that was saved, or save the class that is declared.
"""

from collections.abc import Collection, Iterator
from contextlib import suppress

from msgspec.structs import replace

from auditor.analytic.config_keys import typed_parts, value_at
from auditor.analytic.lookup import follow
from auditor.checkpoint.change import with_config
from auditor.diagnosis.case import Case, Proposal
from auditor.diagnosis.solving.trials import Trials
from auditor.errors import CheckpointError
from auditor.findings import UnusedHead
from auditor.messages import listed

CAUSE = "other-class"
_DRAFTING = ("mtp_num_hidden_layers", "num_nextn_predict_layers")
_MOST = 12  # the most classes that are tried
_MASKED, _CAUSAL = "ForMaskedLM", ("LMHeadModel", "ForCausalLM")


def proposals(case: Case) -> Iterator[Proposal]:
    """Yield every other class of the model type that fits, unless the user chose a class."""
    report = case.report
    yield from _language_model_alone(case)
    yield from _part_alone(case)
    if case.is_adapter or case.target is not None or None in {report.model_type, report.target}:
        return
    unused = (finding for finding in case.alarms if UnusedHead.describes(finding))
    head_users = [name for finding in unused for name in finding.used_by]
    if case.is_of_other_names or not (case.missing or case.unexpected or head_users):
        return
    others = sorted(other_classes(case), key=lambda name: name not in head_users)
    for name in others[:_MOST]:
        proposal = of_class(case, name)
        if head_users:
            reader = "vLLM and llama.cpp's converter choose the class by it"
            proposal = replace(proposal, fix=f"{proposal.fix}; {reader}")
        yield proposal


def of_class(case: Case, name: str) -> Proposal:
    """Return the proposal that declares the class that fits."""
    report = case.report
    declared = report.target or report.declared[0]
    config = f"declares {declared}"
    if not report.declared:
        config = f"names no architectures, which stands for {declared}"
    remedies = [f'set architectures to ["{name}"] in config.json', f"save the {declared}"]
    has_another_head = any(one.kind == "unused" for one in report.findings)
    if case.missing and not (case.unexpected or has_another_head):  # the head was lost
        remedies = [f"save the {declared} with {listed(case.missing.names[:2])}", remedies[0]]
    return Proposal(
        cause=CAUSE,
        change=case.setting({"architectures": [name]}),
        fields=(("architectures", list(report.declared), [name]),),
        summary=f"the files hold a {name}, and the config {config}",
        fix=f"{remedies[0]}, or {remedies[1]}",
        evidence=(f"all tensors of {name} are stored, and no others",),
        either=name,
        undecided=(
            f"the config {config}, and the files hold a model of another class",
            f"set architectures to the class that was saved, or save the {declared}",
        ),
        exact=True,
    )


def other_classes(case: Case) -> list[str]:
    """Return the type's other classes that fit; all other classes if there is no closed form."""
    classes = case.classes(case.report.model_type or "")
    names = [name for name in classes if name != case.report.target]
    if case.report.expected is None or case.report.expected.by != "closed-form":
        return names
    return _fitting(case, names)


def holds_another_head(case: Case) -> bool:
    """Whether another class fits, and uses a stored head that the target leaves unused."""
    unused = any(finding.kind == "unused" for finding in case.report.findings)
    return unused and case.target is None and bool(other_classes(case))


def _fitting(case: Case, names: Collection[str]) -> list[str]:
    """Return the classes that expect exactly the stored tensors, compared by one of each kind.

    A kind is the tensors whose names differ only in numbers. Classes whose names match the stored
    ones also in having or lacking the prefix come first.
    """
    trials = Trials(case.unpacked_on_disk, None)
    ranked: list[tuple[int, int, str]] = []
    for place, name in enumerate(names):
        expected = None
        with suppress(CheckpointError):
            expected = case.tree(case.snapshot, target=name)
        if expected is not None and not trials.compare(expected).differ:
            steps = (follow(expected.tree, kind.first) for kind in case.unpacked_on_disk.kinds)
            as_spelt = sum(step.shape is not None for step in steps)
            ranked.append((-as_spelt, place, name))
    names = [name for *_, name in sorted(ranked)]
    # Both have the same tensors: is_decoder decides, and transformers warns about the other one.
    endings = (_CAUSAL, _MASKED) if case.config.get("is_decoder") is True else (_MASKED, _CAUSAL)
    chosen, others = ([name for name in names if name.endswith(one)] for one in endings)
    return [name for name in names if name not in others] if chosen else names


def _language_model_alone(case: Case) -> Iterator[Proposal]:
    """Yield the language model's class, if the files store no other part of the declared class."""
    report = case.report
    declared, target = next(iter(report.declared), None), report.target
    if case.target is not None or None in {declared, target} or declared == target:
        return
    if {finding.kind for finding in case.alarms} != {"bad-config"}:
        return
    drafting = [
        (key, count, 0)
        for key in _DRAFTING
        if (count := value_at(case.config, key)) and any(key in note for note in report.notes)
    ]
    fields = (("architectures", list(report.declared), [target]), *drafting)
    more = f", nor the {drafting[0][1]} layers for drafting tokens" if drafting else ""
    yield Proposal(
        cause=CAUSE,
        change=case.setting({key: value for key, _, value in fields}),
        fields=fields,
        summary=f"{declared} has parts beside its language model, and neither they{more} nor a "
        f"config of them are here: the files hold a {target}",
        fix=f'set architectures to ["{target}"] in config.json, or upload the whole {declared}',
        evidence=(f"every stored tensor is one of {target}",),
    )


def _part_alone(case: Case) -> Iterator[Proposal]:
    """Yield a nested config, such as text_config, as the config, if the files hold that part."""
    if case.target is not None or not (case.missing and case.unexpected):
        return
    trials, is_found = Trials(case.unpacked, None), False
    for path, model_type, part in typed_parts(case.config):
        if is_found:
            return
        for name in case.classes(model_type)[:_MOST]:
            config = {**part, "architectures": [name]}
            with suppress(CheckpointError):
                tree = case.tree(with_config(case.snapshot, config))
                if tree and not trials.compare(tree).differ:
                    declared, is_found = case.report.target, True
                    yield Proposal(
                        cause=CAUSE,
                        change=case.with_config(config),
                        fields=(("architectures", list(case.report.declared), [name]),),
                        summary=f"the files hold a {name}, the part of {path} alone, and the "
                        f"config is that of a whole {declared}",
                        fix=f'take {path} as the config, with architectures ["{name}"]; or upload '
                        f"the whole {declared}",
                        evidence=(f"all tensors of {name} are stored, and no others",),
                        either=name,
                        undecided=(
                            f"the files hold the part of {path} alone, of a whole {declared}",
                            f"take {path} as the config, with the class that was saved",
                        ),
                        exact=True,
                    )
