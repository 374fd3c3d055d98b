"""The page of `audit doctor`: a line for each possible cause of bad or endless generated text.

Each line is `ok`, `wrong` with what to do, or `not checked` with the reason.
"""

from collections.abc import Iterator

from msgspec import Struct

from auditor.companions.companion_files import (
    ADDED,
    GENERATION,
    OLDER_TEMPLATE,
    SPECIAL,
    TEMPLATE,
    TOKENIZER,
    TOKENIZER_CONFIG,
)
from auditor.findings import Severity
from auditor.formats.finding_text import ARROW
from auditor.formats.meanings import kind_meanings
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
from auditor.report import Report, Unaudited

_TOKENIZERS = (TOKENIZER, TOKENIZER_CONFIG, ADDED, SPECIAL)
_TEMPLATES = (TOKENIZER_CONFIG, TEMPLATE, OLDER_TEMPLATE)
_NAME_ROOM = 60  # most cells of a finding's first name
_MOST = 5  # most findings of a topic


class Topic(Struct, frozen=True, kw_only=True):
    """A property of a model, the findings that contradict it, and the files needed to check it."""

    name: str
    ok: str  # the sentence for a property that was checked and has no finding
    kinds: frozenset[str]
    files: tuple[str, ...] = ()  # one of these companion files is needed; (): none is
    needs: str = "config"  # what else is needed: config, weights or values


def _topic(
    name: str, ok: str, kinds: str, *, files: tuple[str, ...] = (), needs: str = "config"
) -> Topic:
    return Topic(name=name, ok=ok, kinds=frozenset(kinds.split()), files=files, needs=needs)


TOPICS = (
    _topic(
        "files",
        "every file is as long as its header, its index and its listing state",
        "bad-header bad-index bad-digest bad-size wrong-total unsafe missing-component "
        "copy-differs equals-base hub-count adapter-beside",
        needs="weights",
    ),
    _topic(
        "tensors",
        "each tensor that the class needs is stored once, in its shape",
        "missing unexpected mismatched unused-head duplicate formula-disputed added-bias-zero",
        needs="weights",
    ),
    _topic(
        "dtype",
        "the weights are stored in the declared dtype",
        "wrong-dtype padded-dtype",
        needs="weights",
    ),
    _topic(
        "quantization",
        "packed weights have their scales, and the lists of plain modules fit",
        "bad-quantization",
        needs="weights",
    ),
    _topic(
        "values",
        "no number is NaN, infinite or an outlier, no matrix is empty, constant or untrained",
        "not-finite outlier subnormal mislabeled-dtype all-zero part-zero constant-matrix "
        "no-op-adapter idle-modules tied-copy-differs copied-modules fresh-head untrained "
        "untrained-rows",
        needs="values",
    ),
    _topic(
        "config",
        "its keys agree with each other (rope, window, layers, dtype), and each is read",
        "bad-config config-contradiction unknown-config-key config-overwritten",
    ),
    _topic("code", "the classes that the config names exist", "code-not-there"),
    _topic(
        "vocabulary",
        "no token has an id beyond the embedding's rows",
        "token-beyond-embedding special-id-beyond-vocabulary",
        files=_TOKENIZERS,
    ),
    _topic(
        "end tokens",
        "config, generation config and tokenizer name the same ends",
        "eos-disagrees",
        files=(GENERATION, *_TOKENIZERS),
    ),
    _topic(
        "chat template",
        "it parses, and ends turns with a token at which generation stops",
        "chat-turns-wrong chat-template-broken",
        files=_TEMPLATES,
    ),
    _topic(
        "generation",
        "the settings of generation_config.json do not contradict each other",
        "generation-config-invalid",
        files=(GENERATION,),
    ),
    _topic(
        "processor",
        "what the model's inputs need is there, of a class that exists",
        "processor-missing processor-unknown",
    ),
)


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
    alarms = [
        (part, at)
        for part in outcome.every
        for at, one in enumerate(part.findings)
        if one.kind in topic.kinds and one.severity is not Severity.INFO
    ]
    why = _unchecked(topic, outcome)
    texts = [as_sentence(why or topic.ok)]
    if alarms:
        texts = [line for alarm in alarms[:_MOST] for line in _said(*alarm)]
    if len(alarms) > _MOST:
        texts.append(f"And {len(alarms) - _MOST:,} more; audit MODEL lists them.")
    wrong: Styled = ("wrong", "bold red")
    state, style = wrong if alarms else _state(why)
    first, second = len("not checked"), max(len(one.name) for one in TOPICS)
    for at, text in enumerate(texts):
        label, name = ("", "") if at else (state, topic.name)
        status: Styled = (f"{label:<{first}}", style)
        topic_name: Styled = (f"{name:<{second}}", "bold")
        yield from columns([(status, topic_name, shown(text))], gap=2, width=width)


def _state(why: str) -> Styled:
    return ("not checked", "bold yellow") if why else ("ok", "bold green")


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
    advice = {meaning.name: meaning.to_do for meaning in kind_meanings()}
    return as_sentence(text), f"{ARROW} {fixes[0] if fixes else advice[finding.kind]}"


def _unchecked(topic: Topic, outcome: Report | Unaudited) -> str:
    """Return the reason why a topic was not checked; "" if it was checked."""
    if isinstance(outcome, Unaudited):
        return "the model was not audited"
    if topic.needs == "values" and outcome.values is None:
        return "only headers were read; numbers of local files are read if numpy is installed"
    if topic.needs == "weights" and outcome.observed is None:
        return "no weight file was read"
    is_unknown = any(part.expected is None for part in outcome.parts or (outcome,))
    if topic.needs == "weights" and topic.name != "files" and is_unknown:
        return "what the config implies is not known"
    read = {name.rpartition("/")[2] for name in outcome.companions or ()}
    if topic.files and read.isdisjoint(topic.files):
        return f"no file for it was read, expected one of {', '.join(topic.files)}"
    sources = topic.files or (("the config: ",) if topic.needs == "config" else ())
    return next((text for text in outcome.unchecked if text.startswith(sources)), "")
