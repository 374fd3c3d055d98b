"""Rules about chat templates: each parses, copies are equal, and turns end where generation does.

The templates are never rendered.
"""

import re
from collections.abc import Iterator, Mapping
from itertools import product

from auditor.companions.chat_template import (
    END,
    PROMPT,
    NotCheckedError,
    Turns,
    read_templates,
)
from auditor.companions.companion_files import GENERATION, template_name
from auditor.companions.reading import DEFAULT, TEMPLATE_CONFIGS, TEMPLATE_KEY, templates
from auditor.findings import ChatTemplateBroken, ChatTurnsWrong, Finding, TokenizerNote
from auditor.messages import listed, quoted
from auditor.observation import Checked
from auditor.reconciler.repository_rules.repository_case import RepositoryCase, value_text
from auditor.reconciler.repository_rules.token_ids import END_ID, end_ids

_TOPIC = "chat template"
# Tokens that end an image or a tool call instead of a turn.
_NO_END = re.compile(r"image|img|audio|video|vision|tool|function|think|channel", re.IGNORECASE)
# Tokens that end a turn, and not a document as in base models: <|im_end|>, <|eot_id|>.
_OF_TURNS = re.compile(
    r"im_end|eot|eom|turn|utterance|<\|end\|>|<\|(?:user|assistant|return|call)\|>", re.IGNORECASE
)


def template_findings(case: RepositoryCase) -> Iterator[Finding]:
    texts, unread = case.companions.templates, case.companions.unread
    case.checked[_TOPIC] = _answer_without_turns(case)
    if not texts:
        return
    results = read_templates(dict.fromkeys(texts.values()))
    for (file, name), text in texts.items():
        result = results[text]
        if isinstance(result, NotCheckedError):
            unread[file] = f"the chat template was not checked: it {result}"
            case.checked[_TOPIC] = Checked("unread", f"{file}: {unread[file]}")
        elif isinstance(result, str):
            which = f" {quoted(name)}" if name != DEFAULT else ""
            yield ChatTemplateBroken(
                says=((file, _key_of(file), ""),),
                reason=f"{file}: the chat template{which} does not parse: {result}",
                fix=f"correct the chat template in {file}",
            )
    yield from _differing_copies(texts)
    file, text = next(
        ((file, text) for (file, name), text in texts.items() if name == DEFAULT), ("", "")
    )
    if isinstance(default := results.get(text), Turns):
        yield from _turn_findings(case, file, default)


def _differing_copies(texts: Mapping[tuple[str, str], str]) -> Iterator[Finding]:
    """Report copies that differ: a separate file has precedence over a copy in a config."""
    separate = [(file, name) for file, name in texts if template_name(file) is not None]
    for (own, name), file in product(separate, TEMPLATE_CONFIGS):
        copy = texts.get((file, name))
        if copy is not None and _normalized(copy) != _normalized(texts[own, name]):
            yield ChatTemplateBroken(
                says=((own, "", ""), (file, TEMPLATE_KEY, "")),
                reason=f"{own} and {TEMPLATE_KEY} of {file} differ; transformers takes {own}",
                fix=f"remove {TEMPLATE_KEY} from {file}, or {own}: whichever is not meant",
            )


def _key_of(file: str) -> str:
    return "" if template_name(file) is not None else TEMPLATE_KEY


def _normalized(text: str) -> str:
    return text.replace("\r\n", "\n").strip()


def _answer_without_turns(case: RepositoryCase) -> Checked:
    """Return what there is to compare, as long as no template has been read."""
    files = case.companions.files
    named = (file for file in files if template_name(file) is not None)
    if unread := case.unusable(*named, *TEMPLATE_CONFIGS):
        return unread
    for file in TEMPLATE_CONFIGS:
        value = (case.companions.object(file) or {}).get(TEMPLATE_KEY)
        if value is not None and not templates(value):
            return Checked("incomparable", f"{TEMPLATE_KEY} of {file} is not a template")
    if not case.companions.templates:
        return case.absence("no file has a chat template")
    return Checked("incomparable", "no chat template is the default one")


# --- turns --------------------------------------------------------------------------------------


def _turn_findings(case: RepositoryCase, file: str, turns: Turns) -> Iterator[Finding]:
    """Report a template that adds no generation prompt, or whose turns end without an end token.

    An end token that ends documents is only a note, as in a base model that has the chat template
    of its instruct model. An end token that marks turns, but is absent from the template, shows
    that the template has another format.
    """
    says = ((file, _key_of(file), ""),)
    if turns.headers and not turns.has_prompt:
        yield ChatTurnsWrong(
            says=says,
            reason=f"the chat template in {file} begins each turn with a header and does not "
            f"read {PROMPT}: the model has to write the header of its answer itself",
            fix=f"end the template with the header of the assistant's turn, if {PROMPT} is true",
        )
    id_by_text = case.companions.id_by_text
    stops = frozenset[int]().union(*end_ids(case).values())
    if case.checked[_TOPIC].state == "incomparable":
        case.checked[_TOPIC] = _answer_by_turns(case, file, turns, stops)
    tokens = sorted({end for text in turns.ends if (end := _token_at_end(text, id_by_text))})
    stop_texts = [text for text, token_id in id_by_text.items() if token_id in stops]
    is_known = stops and len({id_by_text[text] for text in stop_texts}) == len(stops)
    if not tokens or not is_known or turns.names_end or END in turns.ends:
        return
    if any(stop in text for stop in stop_texts for text in turns.texts):
        return
    why = f"the chat template in {file} ends turns with another token than generation"
    case.checked["end tokens"] = Checked("incomparable", why)
    ids = sorted({id_by_text[end] for end in tokens})
    kind = ChatTurnsWrong if any(map(_OF_TURNS.search, stop_texts)) else TokenizerNote
    yield kind(
        says=says,
        reason=f"the chat template in {file} ends the assistant's turns with "
        f"{listed(tokens)} ({', '.join(map(str, ids))}), and generation ends at "
        f"{', '.join(map(quoted, sorted(stop_texts)))}, which the template never writes",
        fix=f"set {END_ID} of {GENERATION} to {value_text(sorted({*stops, *ids}))}, if the "
        "model was trained with this template",
    )


def _answer_by_turns(
    case: RepositoryCase, file: str, turns: Turns, stops: frozenset[int]
) -> Checked:
    """Return whether each token that ends the assistant's turns ends generation, too."""
    companions = case.companions
    texts = {_token_at_end(text, companions.id_by_text) or "" for text in turns.ends - {END}}
    ids = {text: companions.ids_of(text) for text in texts}
    if END in turns.ends:
        ids["eos_token"] = companions.ids_of(companions.end_token[1])
    if ids and all(one and one <= stops for one in ids.values()):
        text = f"{file} parses, and ends turns with {listed(sorted(ids))}, which end generation"
        return Checked("compared", text)
    text = f"{file} parses; whether generation stops where its turns end cannot be compared"
    return Checked("incomparable", text)


def _token_at_end(text: str, id_by_text: Mapping[str, int]) -> str | None:
    """Return the longest added token at the end of a text; None if it is absent or ends no turn."""
    text = text.rstrip()
    token = max((one for one in id_by_text if one and text.endswith(one)), key=len, default=None)
    return None if token is None or _NO_END.search(token) else token
