"""Rules about chat templates: each parses, copies are equal, and turns end with an end token.

The templates are never rendered.
"""

from collections.abc import Iterator, Mapping
from itertools import product

from auditor.companions.companion_files import (
    OLDER_TEMPLATE,
    PROCESSOR,
    TEMPLATE,
    TOKENIZER_CONFIG,
    template_name,
)
from auditor.companions.template_turns import Turns
from auditor.companions.tokenizer_config import DEFAULT, templates
from auditor.findings import ChatTemplateBroken, Finding
from auditor.messages import quoted
from auditor.observation import Checked
from auditor.reconciler.repository_rules.chat_turns import turn_findings
from auditor.reconciler.repository_rules.repository_case import RepositoryCase

_KEY = "chat_template"


def template_findings(case: RepositoryCase) -> Iterator[Finding]:
    texts = dict(_templates(case))
    case.checked["chat template"] = _template_answer(case, texts)
    if not texts:
        return
    from auditor.companions.chat_template import (  # noqa: PLC0415 - most models have none
        NotCheckedError,
        read_templates,
    )

    results = read_templates(dict.fromkeys(texts.values()))
    for (file, name), text in texts.items():
        result = results[text]
        if isinstance(result, NotCheckedError):
            case.unread[file] = f"the chat template was not checked: it {result}"
            case.checked["chat template"] = Checked("unread", f"{file}: {case.unread[file]}")
        elif isinstance(result, str):
            which = f" {quoted(name)}" if name != DEFAULT else ""
            yield ChatTemplateBroken(
                says=((file, "" if template_name(file) is not None else _KEY, ""),),
                reason=f"{file}: the chat template{which} does not parse: {result}",
                fix=f"correct the chat template in {file}",
            )
    yield from _differing_copies(texts)
    file, text = next(
        ((file, text) for (file, name), text in texts.items() if name == DEFAULT), ("", "")
    )
    if isinstance(default := results.get(text), Turns):
        key = "" if template_name(file) is not None else _KEY
        yield from turn_findings(case, (file, key), default)


def _template_answer(case: RepositoryCase, texts: Mapping[tuple[str, str], str]) -> Checked:
    """Return what there is to compare, as long as no template has been read."""
    named = (file for file in case.companions if template_name(file) is not None)
    configs = (TOKENIZER_CONFIG, OLDER_TEMPLATE, PROCESSOR)
    if unread := case.unusable(*named, *configs):
        return unread
    for file in configs:
        values = case.object(file) or {}
        if values.get(_KEY) is not None and not templates(values):
            return Checked("incomparable", f"{_KEY} of {file} is not a template")
    if not texts:
        return case.absence("no file has a chat template")
    return Checked("incomparable", "no chat template is the default one")


def _templates(case: RepositoryCase) -> Iterator[tuple[tuple[str, str], str]]:
    """Yield ((file, name), text) of each template; first the default one that transformers uses."""
    for file in sorted(case.companions.values(), key=lambda file: file.name != TEMPLATE):
        which = template_name(file.name)
        if which is None or file.content is None:
            continue
        try:
            yield (file.name, which or DEFAULT), file.content.decode()
        except UnicodeDecodeError:
            case.unread[file.name] = "it is not UTF-8"
    for name in (TOKENIZER_CONFIG, OLDER_TEMPLATE, PROCESSOR):
        values = case.object(name)
        if values is not None:
            yield from (((name, which), text) for which, text in templates(values).items())


def _differing_copies(texts: dict[tuple[str, str], str]) -> Iterator[Finding]:
    """Report copies that differ: a separate file has precedence over a copy in a config."""
    files = [(file, name) for file, name in texts if template_name(file) is not None]
    for (own, name), file in product(files, (TOKENIZER_CONFIG, OLDER_TEMPLATE, PROCESSOR)):
        other = texts.get((file, name))
        if other is not None and _normalized(other) != _normalized(texts[own, name]):
            yield ChatTemplateBroken(
                says=((own, "", ""), (file, _KEY, "")),
                reason=f"{own} and {_KEY} of {file} differ; transformers takes {own}",
                fix=f"remove {_KEY} from {file}, or {own}: whichever is not meant",
            )


def _normalized(text: str) -> str:
    return text.replace("\r\n", "\n").strip()
