"""The top of a report: the verdict, a line that adds up the parameters, the page on the Hub."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from os.path import commonprefix
from urllib.parse import quote

from auditor.engines.schemes import UNKNOWN
from auditor.findings import (
    BadSize,
    Finding,
    Mismatched,
    Missing,
    NewlyInitialized,
    Severity,
    Unexpected,
    Unsafe,
    Unused,
    UnusedHead,
)
from auditor.formats.text import Styled, counted
from auditor.names.folding import fold
from auditor.report import Diagnosis, EngineVerdict, Report, Unaudited, Verdict

_VERDICTS: Mapping[Verdict, str] = {
    "findings": "with findings",
    "unaudited": "not audited",
    "clean": "clean",
}
_NOT_USED = (
    Unused.kind,
    UnusedHead.kind,
    Unexpected.kind,
)  # kinds of tensors that are stored and not used


_COUNTED = (Missing.kind, Mismatched.kind, Unexpected.kind)  # kinds with a clause of their own


def word(outcome: Report | Unaudited) -> Styled:
    """Return the verdict in one word, with its style."""
    if isinstance(outcome, Unaudited):
        return "NOT AUDITED", "bold yellow"
    if outcome.verdict == "clean":
        return "OK", "bold green"
    is_warning = {finding.severity for finding in outcome.alarms} == {Severity.WARNING}
    return ("WARNING", "bold yellow") if is_warning else ("ERROR", "bold red")


def headline_cause(outcome: Report | Unaudited) -> Diagnosis | None:
    """Return the cause whose summary is the report's first sentence; None if there is no cause."""
    causes = outcome.diagnosis if isinstance(outcome, Report) else ()
    return min(causes, key=lambda cause: cause.severity.rank, default=None)


def leading_part(outcome: Report | Unaudited) -> Report | Unaudited:
    """Return the outcome that the headline is about: a repository's worst model, or itself.

    A fault of the repository itself comes first.
    """
    if isinstance(outcome, Unaudited) or any(map(_alarms, outcome.findings)):
        return outcome
    faulty = [part for part in outcome.parts if part.verdict == "findings" and part.alarms]
    rank = {id(part): min(one.severity.rank for one in part.alarms) for part in faulty}
    return min(faulty, key=lambda part: rank[id(part)], default=outcome)


def worst_finding(outcome: Report | Unaudited) -> Finding | None:
    """Return the most severe finding of a report without a cause; None if nothing is wrong."""
    if not isinstance(outcome, Report) or outcome.parts or outcome.diagnosis:
        return None
    alarms = filter(_alarms, outcome.findings)
    return min(alarms, key=lambda finding: finding.severity.rank, default=None)


def headline_finding(outcome: Report | Unaudited) -> Finding | None:
    """Return the finding whose reason begins the report; None if the report begins otherwise."""
    if any(finding.kind in _COUNTED for finding in outcome.findings if _alarms(finding)):
        return None
    return worst_finding(outcome)


def as_sentence(text: str) -> str:
    """Return a text as a sentence: with a full stop, and with a capital if a word comes first.

    A name at the start is not changed.
    """
    first = text.partition(" ")[0]
    is_word = first.isalpha() and first.islower()
    return f"{text[:1].upper() if is_word else text[:1]}{text[1:]}."


def cause_sentence(cause: Diagnosis) -> str:
    """Return the summary of a cause as a sentence; a config key at its start is not changed."""
    keys = {key for key, *_ in (*cause.fields, *cause.undetermined)}
    return (
        f"{cause.summary}." if cause.summary.split(" ")[0] in keys else as_sentence(cause.summary)
    )


def causes_to_print(outcome: Report | Unaudited) -> Iterator[tuple[str, Diagnosis]]:
    """Yield each cause with its sentence, which is "" for the headline's cause."""
    headline = headline_cause(outcome)
    for cause in outcome.diagnosis:
        yield "" if cause is headline else cause_sentence(cause), cause


def sentence(outcome: Report | Unaudited, within: Report | None = None) -> str:
    """Return the sentence that follows the verdict's word: the cause, else the worst findings.

    `within` is the repository if the outcome is one of its models.
    """
    is_read = not (within or outcome).unread
    if (cause := headline_cause(outcome)) is not None:
        return cause_sentence(cause)
    alarms = outcome.alarms
    if isinstance(outcome, Unaudited):
        more = f"; and {counted(len(alarms), 'finding')}" if alarms else ""
        text = f"{outcome.detail}{more}"
        is_name = text.startswith(outcome.requested)  # of a folder: it keeps its small letters
        return f"{f'{text}.' if is_name else as_sentence(text)} ({outcome.reason})"
    if outcome.parts:
        return _of_parts(outcome, alarms)
    if outcome.residual and not alarms:
        return (
            f"{outcome.residual:,} parameters are explained by no finding, which is a fault of "
            f"this program: please report it."
        )
    if (worst := headline_finding(outcome)) is not None:
        about = worst.file or next(iter(worst.names[:1]), "")
        where = f"{about}: " if about and about.lower() not in worst.reason.lower() else ""
        more = _others(len(alarms) - 1)
        said = as_sentence(f"{where}{worst.reason}{more}")
        has_part = is_read and not worst.kind.startswith("bad-")
        stored = _stored_part(outcome) if has_part else ()
        return " ".join([said, *map(as_sentence, stored)])
    clauses = [*_of_tensors(alarms, outcome)]
    if is_read and not any(one.kind in {Missing.kind, Mismatched.kind} for one in alarms):
        clauses = [*_stored_part(outcome), *clauses]
    others = sum(finding.kind not in _COUNTED for finding in alarms)
    return as_sentence(f"{'; '.join(clauses)}{_others(others)}")


def _stored_part(report: Report) -> Iterator[str]:
    """Yield a clause about the needed tensors: `all 103 tensors that X needs are stored`.

    Yield none if tensors that were not read, or that --ignore leaves out, make it untrue.
    """
    target, expected = report.target or "the config", report.expected
    if any(_alarms(finding) and finding.kind not in _NOT_USED for finding in report.ignored):
        if report.verdict == "clean":
            yield "nothing is wrong except what --ignore leaves out"
        return
    if expected is None:
        tensors = report.observed.tensors if report.observed else 0
        yield f"{counted(tensors, 'tensor')} read; the config does not say what to expect"
        return
    has_shapes = report.observed is not None and report.observed.parameters is not None
    if has_shapes and any(finding.kind.startswith("bad-") for finding in report.findings):
        yield f"no tensor that {target} needs is known to be missing"
        return
    initialized = sum(
        finding.evidence.get("learned", finding.count)
        for finding in report.findings
        if finding.kind == NewlyInitialized.kind
    )
    state = "stored, in the right shapes" if has_shapes else "named by the index; shapes unknown"
    if not initialized:
        yield f"all {expected.tensors:,} tensors that {target} needs are {state}"
        return
    stored = expected.tensors - initialized
    verb = "is" if stored == 1 else "are"
    yield (
        f"{counted(stored, 'tensor')} of {target} {verb} {state}; {initialized:,} newly initialized"
    )


def _of_tensors(alarms: Sequence[Finding], report: Report) -> Iterator[str]:
    """Yield clauses with the numbers of missing, mismatched and unexpected tensors."""
    target = report.target or "the config"
    missing, mismatched, unexpected = (
        sum(finding.count for finding in alarms if finding.kind == kind) for kind in _COUNTED
    )
    if missing:
        verb = "is" if missing == 1 else "are"
        names = [name for one in alarms if one.kind == Missing.kind for name in one.names]
        module = common_module([name.rpartition(".")[0] for name in names])
        tensors = counted(missing, "tensor") + (f" of {module}" if module else "")
        yield f"{tensors} that {target} needs {verb} not stored"
    if mismatched:
        owner = "" if missing else f" that {target} needs"
        shapes = "has another shape" if mismatched == 1 else "have other shapes"
        yield f"{counted(mismatched, 'tensor')}{owner} {shapes}"
    if unexpected:
        verb = "is" if unexpected == 1 else "are"
        yield f"{counted(unexpected, 'stored tensor')} {verb} unexpected"


def _others(count: int) -> str:
    """Return a clause about `count` further findings; "" if `count` is 0."""
    return f"; and {counted(count, 'more finding')}" if count else ""


def _of_parts(outcome: Report, alarms: Sequence[Finding]) -> str:
    counts = Counter(part.verdict for part in outcome.parts)
    words = [
        f"{counts[verdict]:,} {text}" for verdict, text in _VERDICTS.items() if counts[verdict]
    ]
    parts = f"{counted(len(outcome.parts), 'model')} in one repository: {', '.join(words)}"
    lead = leading_part(outcome)
    if lead is not outcome:
        said = sentence(lead, outcome)  # a file's path begins with the component
        where = "" if said.startswith(f"{lead.component}/") else f"{lead.component}: "
        return f"{parts}; {where}{said}"
    own_alarms = [finding for finding in alarms if finding in outcome.findings]
    reasons = [f"{', '.join(one.names[:3]) or one.file}: {one.reason}" for one in own_alarms[:1]]
    return f"{'; '.join([parts, *reasons])}{_others(len(own_alarms[1:]))}."


def _alarms(finding: Finding) -> bool:
    return finding.severity is not Severity.INFO


def counts_of(finding: Finding) -> list[str]:
    """Return a finding's counts that are not 0, as texts: `2 names`, `5 parameters`."""
    names = [counted(finding.count, "name")] if finding.names else []
    return names + ([counted(finding.parameters, "parameter")] if finding.parameters else [])


def first_patterns(finding: Finding, most: int) -> tuple[Sequence[str], str]:
    """Return the first folded names of a finding, and `and 3 more` if there are more, else ""."""
    patterns = fold(finding.names)
    left = len(patterns) - most
    return patterns[:most], f"and {left:,} more" if left > 0 else ""


def common_module(names: Sequence[str]) -> str:
    """Return the innermost module that contains all names; "" for the root."""
    # Segments shared by the first and the last name in sorted order are shared by all names.
    first, last = min(names).split("."), max(names).split(".")
    return ".".join(commonprefix([first, last]))  # noqa: RUF071 - lists, not paths


# --- the account ------------------------------------------------------------------------------


def account(outcome: Report | Unaudited) -> str:
    """Return a line that adds up the parameters by kind of finding; "" if no header was read.

    An example is `102 used + 5 unused = 107 parameters stored; 110 expected (8 missing)`.
    """
    stored = outcome.observed.parameters if outcome.observed else None
    if stored is None:
        return ""
    findings = [one for part in outcome.every for one in (*part.findings, *part.ignored)]
    is_cut = any(finding.kind == BadSize.kind for finding in findings)
    is_known = stored or not outcome.unread
    total = f"{counted(stored, 'parameter')} {'in the headers' if is_cut else 'stored'}"
    total = total if is_known else "0 parameters read"
    if outcome.expected is None:
        return total
    terms: Counter[str] = Counter()  # parameters explained by findings (also ignored ones), by kind
    for finding in findings:
        terms[finding.kind] += finding.explains
    not_used = {kind: terms.pop(kind, 0) for kind in _NOT_USED}
    residual = (outcome.residual or 0) if isinstance(outcome, Report) else 0
    used = stored - sum(not_used.values()) - residual
    others = "".join(f" + {count:,} {kind}" for kind, count in not_used.items() if count)
    if residual:
        others += f" {'+' if residual > 0 else '-'} {abs(residual):,} not explained"
    is_equal = used == outcome.expected.parameters
    if others and not isinstance(outcome, Unaudited):
        text = f"{used:,} used{others} = {total}"
    elif stored and not outcome.unread and (is_equal or outcome.verdict == "clean"):
        text = f"{total}, all of them used"
    else:
        text = total
    if is_equal:
        return text
    missing = ", ".join(_term(kind, count) for kind, count in terms.items() if count)
    return f"{text}; {outcome.expected.parameters:,} expected{f' ({missing})' if missing else ''}"


def _term(kind: str, explains: int) -> str:
    """Return the term of a finding kind in the sum.

    Only wrong shapes need a sign, because they may increase or decrease the sum.
    """
    if kind == Mismatched.kind:
        return f"{explains:+,} {kind}"
    is_hidden = kind == Unsafe.kind or kind.startswith("bad-")
    return f"{abs(explains):,} {'not read' if is_hidden else kind}"


# --- engines -------------------------------------------------------------------------------------


_LOADS = {True: "loads", False: "does not load", None: "unknown"}
_READS = {
    "right": "loads",
    "wrong-silently": "reads otherwise",
    "warns": "loads with a warning",
    "refuses": "refuses",
    "unknown": "unknown",
}


def engine_rows(outcome: Report | Unaudited) -> Iterator[tuple[str, str]]:
    """Yield an engine with its version, and what it makes of the checkpoint.

    Neighbouring releases of one library with the same verdict share a row.
    """
    for (_, sentence), group in groupby(outcome.engines, key=_row_key):
        same = list(group)
        last = f" to {same[-1].version}" if len(same) > 1 else ""
        yield f"{same[0].title}{last}", sentence


def _row_key(verdict: EngineVerdict) -> tuple[str, str]:
    return verdict.name, engine_sentence(verdict)


def engine_remedies(outcome: Report | Unaudited) -> Iterator[str]:
    """Yield what to do for each engine that does not load the checkpoint."""
    loading = [one.title for one in outcome.engines if one.loads]
    for verdict in outcome.engines:
        if verdict.loads is not False:
            continue
        if verdict.additions:
            keys, asked = ", ".join(verdict.additions), verdict.engine.replace(" ", "==")
            yield f"{verdict.title}: `audit fix --for {asked}` adds {keys} to config.json"
        else:
            instead = f"; serve it with {' or '.join(loading)}" if loading else ""
            yield f"{verdict.title}: no fix is known that keeps the model as it is{instead}"


def engine_sentence(verdict: EngineVerdict) -> str:
    """Return the verdict in words, with its reasons."""
    is_known = verdict.scheme not in {None, UNKNOWN}
    scheme = (f"quantized layers by {verdict.scheme}",) if is_known else ()
    reasons = "; ".join((*verdict.reasons, *scheme))
    word = _LOADS[verdict.loads] if verdict.verdict is None else _READS[verdict.verdict]
    return f"{word}{': ' if reasons else ''}{reasons}"


def engines_heading(outcome: Report | Unaudited) -> str:
    """Return the heading of the rows, which dates them."""
    dates = sorted({verdict.date for verdict in outcome.engines})
    return f"Engines, as their own loaders did with small saves on {', '.join(dates)}"


# --- the page on the Hub ------------------------------------------------------------------------


_HUB = "https://huggingface.co"
_FROM_HUB = frozenset({"hub", "cache", "bundled"})  # sources whose models have a Hub id


def address(outcome: Report | Unaudited, file: str | None = None) -> str | None:
    """Return the Hub URL of the audited commit, or of its `file`; None without a Hub id."""
    if outcome.model is None or outcome.source not in _FROM_HUB:
        return None
    place = f"{_HUB}/{quote(outcome.model, safe='/')}"
    revision = quote(outcome.commit or "main", safe="")
    if file is None:
        return f"{place}/tree/{revision}"
    return f"{place}/blob/{revision}/{quote(file, safe='/')}"
