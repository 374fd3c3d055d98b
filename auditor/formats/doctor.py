"""The page of `audit doctor`: a line for each possible cause of bad or endless generated text.

A line is `wrong` or `note` with what to do if the audit has a finding about it; else `ok` with
what was compared, or `not there`, `not needed`, `not checked` or `cannot tell` with the reason.
"""

import re
from collections.abc import Iterator

from msgspec import Struct

from auditor.companions.companion_files import TOKENIZER
from auditor.findings import Finding, Severity, TokenizerNote, kind_of
from auditor.formats.finding_text import ARROW
from auditor.formats.text import (
    Styled,
    StyledLine,
    columns,
    cut_middle,
    lines_text,
    shown,
    wrapped,
)
from auditor.formats.verdict import as_sentence
from auditor.observation import Checked
from auditor.report import Report, Unaudited

_NAME_ROOM = 60  # most cells of a finding's first name
_MOST = 5  # most findings of a topic


class Topic(Struct, frozen=True, kw_only=True):
    """A property of a model: the findings that contradict it, and what has to be read for it."""

    name: str
    kinds: frozenset[str]
    notes: frozenset[str]  # kinds of severity info that are worth a line
    ok: str  # the sentence for weights or values that were compared; "": `Outcome.checked` has it
    gaps: re.Pattern[str]  # the start of a line of `Outcome.unchecked` that is about the property


def _topic(name: str, kinds: str, *, notes: str = "", ok: str = "", gaps: str = r"\Z.") -> Topic:
    parts = frozenset(kinds.split()), frozenset(notes.split())
    return Topic(name=name, kinds=parts[0], notes=parts[1], ok=ok, gaps=re.compile(gaps))


_FILES, _TENSORS, _DTYPE, _PACKED, _VALUES = "files", "tensors", "dtype", "quantization", "values"
_VOCABULARY, _TEMPLATE = "vocabulary", "chat template"
_UNREAD = r"shapes and dtypes: |\d+ weight file|everything: "
TOPICS = (
    _topic(
        _FILES,
        "bad-header bad-index shards-not-loaded bad-digest bad-size wrong-total unsafe "
        "missing-component copy-differs equals-base hub-count adapter-beside",
        ok="each weight file that was read is as long as its header states",
        gaps=_UNREAD,
    ),
    _topic(
        _TENSORS,
        "missing unexpected mismatched unused-head duplicate formula-disputed added-bias-zero",
        notes="newly-initialized",
        ok="each tensor that the class needs is stored once, in its shape",
        gaps=f"{_UNREAD}|what packed tensors lack",
    ),
    _topic(
        _DTYPE,
        "wrong-dtype padded-dtype",
        ok="the weights are stored in the declared dtype",
        gaps=f"{_UNREAD}|the dtype: ",
    ),
    _topic(
        _PACKED,
        "bad-quantization",
        notes="unmatched-modules",
        ok="packed weights have their scales, and the lists of plain modules fit",
        gaps=f"{_UNREAD}|what packed tensors lack",
    ),
    _topic(
        _VALUES,
        "not-finite outlier subnormal mislabeled-dtype all-zero part-zero constant-matrix "
        "no-op-adapter idle-modules tied-copy-differs copied-modules fresh-head untrained "
        "untrained-rows",
        notes="mean-rows repeated-layers head-equals-embedding",
        ok="no number is NaN, infinite or an outlier, no matrix is empty, constant or untrained",
        gaps=f"{_UNREAD}|values|untrained rows: ",
    ),
    _topic("config", "bad-config config-contradiction unknown-config-key config-overwritten"),
    _topic("code", "code-not-there"),
    _topic(_VOCABULARY, "token-beyond-embedding special-id-beyond-vocabulary"),
    _topic("end tokens", "eos-disagrees"),
    _topic(_TEMPLATE, "chat-turns-wrong chat-template-broken"),
    _topic("generation", "generation-config-invalid"),
    _topic("processor", "processor-missing processor-unknown"),
)
_WRONG: Styled = ("wrong", "bold red")
_NOTE: Styled = ("note", "bold yellow")
_STATES: dict[str, Styled] = {
    "compared": ("ok", "bold green"),
    "absent": ("not there", "bold yellow"),
    "unneeded": ("not needed", ""),
    "unread": ("not checked", "bold yellow"),
    "incomparable": ("cannot tell", "bold yellow"),
}
_WORST = ("unread", "incomparable", "compared", "absent", "unneeded")  # of several components


def render(outcome: Report | Unaudited, *, width: int, color: bool) -> str:
    """Return the page: the model's name, then a block for each topic."""
    name = outcome.model or outcome.requested
    target = f" \N{MIDDLE DOT} {shown(outcome.target)}" if outcome.target else ""
    lines = [*wrapped(((shown(name), "bold"), (target, "")), width), ()]
    if isinstance(outcome, Unaudited):
        reason = f"{outcome.reason}: {outcome.detail}"
        lines += [*wrapped((("not audited: ", "bold yellow"), (shown(reason), "")), width), ()]
    for topic in TOPICS:
        lines += _lines(topic, outcome, width)
    return lines_text(lines, color=color)


def _lines(topic: Topic, outcome: Report | Unaudited, width: int) -> Iterator[StyledLine]:
    found = [
        (part, at, finding.severity is not Severity.INFO)
        for part in outcome.every
        for at, finding in enumerate(part.findings)
        if _is_about(topic, finding)
    ]
    alarms = [(part, at) for part, at, is_alarm in found if is_alarm]
    shown_findings = alarms or [(part, at) for part, at, _ in found]
    answer = _answer(topic, outcome)
    texts = [as_sentence(answer.text)]
    if shown_findings:
        texts = [line for one in shown_findings[:_MOST] for line in _said(*one)]
    if len(shown_findings) > _MOST:
        texts.append(f"And {len(shown_findings) - _MOST:,} more; audit -v MODEL lists them.")
    state, style = _STATES[answer.state]
    if shown_findings:
        state, style = _WRONG if alarms else _NOTE
    first, second = len("not checked"), max(len(one.name) for one in TOPICS)
    for at, text in enumerate(texts):
        label, name = ("", "") if at else (state, topic.name)
        status: Styled = (f"{label:<{first}}", style)
        topic_name: Styled = (f"{name:<{second}}", "bold")
        yield from columns([(status, topic_name, shown(text))], gap=2, width=width)


def _is_about(topic: Topic, finding: Finding) -> bool:
    if TokenizerNote.describes(finding):
        return topic.name == (_VOCABULARY if finding.file == TOKENIZER else _TEMPLATE)
    return finding.kind in topic.kinds | topic.notes


def _said(part: Report | Unaudited, at: int) -> tuple[str, str]:
    """Return a sentence about a finding, and the fix of its cause, else the advice for its kind."""
    finding = part.findings[at]
    text = finding.reason
    if finding.file is None and finding.names:
        more = f" and {finding.count - 1:,} more" if finding.count > 1 else ""
        text = f"{cut_middle(finding.names[0], _NAME_ROOM)}{more}: {text}"
    elif finding.file is not None and finding.file not in text:
        text = f"{finding.file}: {text}"
    if part.component is not None:
        text = f"{part.component}: {text}"
    fixes = [cause.fix for cause in part.diagnosis if at in cause.findings]
    if not fixes and TokenizerNote.describes(finding):
        fixes = [finding.fix]
    return as_sentence(text), f"{ARROW} {fixes[0] if fixes else kind_of(finding).to_do}"


def _answer(topic: Topic, outcome: Report | Unaudited) -> Checked:
    """Return whether the property was compared, by the rules' answers or by what was read."""
    models = outcome.parts or (outcome,)
    for part in outcome.every:
        if isinstance(part, Unaudited):
            return Checked("unread", f"{part.component or 'the model'} was not audited")
    gaps = (line for part in outcome.every for line in part.unchecked if topic.gaps.match(line))
    why = next(gaps, "")
    if not topic.ok:
        return _answer_of_rules(topic, outcome)
    if topic.name == _VALUES and any(part.values is None for part in models):
        why = "only headers were read; numbers of local files are read if numpy is installed"
    elif any(part.observed is None for part in models):
        why = "no weight file was read"
    elif topic.name not in {_FILES, _VALUES} and any(part.expected is None for part in models):
        why = "what the config implies is not known"
    elif topic.name == _PACKED and not any(one.observed and one.observed.layout for one in models):
        return Checked("unread", why) if why else Checked("unneeded", "the weights are not packed")
    return Checked("unread", why) if why else Checked("compared", topic.ok)


def _answer_of_rules(topic: Topic, outcome: Report | Unaudited) -> Checked:
    answers = [part.checked[topic.name] for part in outcome.every if topic.name in part.checked]
    if not answers:
        unread = (line for part in outcome.every for line in part.unchecked)
        prefix = "the config: " if topic.name == "config" else "companion files: "
        why = next((line for line in unread if line.startswith(prefix)), "")
        return Checked("unread", why or "no rule compared it for this kind of repository")
    return min(answers, key=lambda answer: _WORST.index(answer.state))
