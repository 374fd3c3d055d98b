"""Chat templates: each has to parse, and copies have to be equal. None is ever rendered."""

from collections.abc import Iterator

from auditor.companions.companion_files import (
    OLDER_TEMPLATE,
    PROCESSOR,
    TEMPLATE,
    TOKENIZER_CONFIG,
    template_name,
)
from auditor.companions.tokenizer_config import DEFAULT, templates
from auditor.findings import ChatTemplateBroken, Finding
from auditor.messages import quoted
from auditor.reconciler.repository_rules.repository_case import RepositoryCase

_KEY = "chat_template"


def template_findings(case: RepositoryCase) -> Iterator[Finding]:
    each = dict(_templates(case))
    if not each:
        return
    from auditor.companions.chat_template import (  # noqa: PLC0415 - most models have none
        NotCheckedError,
        parse_faults,
    )

    faults = parse_faults(dict.fromkeys(each.values()))
    for (file, name), text in each.items():
        fault = faults[text]
        if isinstance(fault, NotCheckedError):
            case.unread[file] = f"the chat template was not checked: it {fault}"
        elif fault is not None:
            which = f" {quoted(name)}" if name != DEFAULT else ""
            yield ChatTemplateBroken(
                says=((file, "" if template_name(file) is not None else _KEY, ""),),
                reason=f"{file}: the chat template{which} does not parse: {fault}",
                fix=f"correct the chat template in {file}",
            )
    yield from _twice(each)


def _templates(case: RepositoryCase) -> Iterator[tuple[tuple[str, str], str]]:
    for file in case.companions.values():
        which = template_name(file.name)
        if which is None or file.content is None:
            continue
        try:
            yield (file.name, which or DEFAULT), file.content.decode()
        except UnicodeDecodeError:
            case.unread[file.name] = "it is not UTF-8"
    for name in (TOKENIZER_CONFIG, OLDER_TEMPLATE, PROCESSOR):
        of = case.object(name)
        if of is not None:
            yield from (((name, which), text) for which, text in templates(of).items())


def _twice(each: dict[tuple[str, str], str]) -> Iterator[Finding]:
    """Report copies that differ: a separate file wins over a tokenizer's or processor's config."""
    own = each.get((TEMPLATE, DEFAULT))
    if own is None:
        return
    for file in (TOKENIZER_CONFIG, OLDER_TEMPLATE, PROCESSOR):
        other = each.get((file, DEFAULT))
        if other is not None and _compared(other) != _compared(own):
            yield ChatTemplateBroken(
                says=((TEMPLATE, "", ""), (file, _KEY, "")),
                reason=f"{TEMPLATE} and {_KEY} of {file} differ; transformers takes {TEMPLATE}",
                fix=f"remove {_KEY} from {file}, or {TEMPLATE}: whichever is not meant",
            )


def _compared(text: str) -> str:
    return text.replace("\r\n", "\n").strip()
