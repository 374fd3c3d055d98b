"""The rules about the turns of a chat template: where generation begins, and where it ends."""

import re
from collections.abc import Iterator

from auditor.companions.companion_files import GENERATION
from auditor.companions.template_turns import END, PROMPT, Turns
from auditor.findings import ChatTurnsWrong, Finding, TokenizerNote
from auditor.messages import listed, quoted
from auditor.observation import Checked
from auditor.reconciler.repository_rules.repository_case import RepositoryCase, value_text
from auditor.reconciler.repository_rules.token_ids import END as END_ID
from auditor.reconciler.repository_rules.token_ids import end_ids, end_token

# Tokens that end an image or a tool call instead of a turn.
_NO_END = re.compile(r"image|img|audio|video|vision|tool|function|think|channel", re.IGNORECASE)
# Tokens that end a turn, and not a document as in base models: <|im_end|>, <|eot_id|>.
_OF_TURNS = re.compile(
    r"im_end|eot|eom|turn|utterance|<\|end\|>|<\|(?:user|assistant|return|call)\|>", re.IGNORECASE
)


def turn_findings(case: RepositoryCase, place: tuple[str, str], turns: Turns) -> Iterator[Finding]:
    """Report a template that adds no generation prompt, or whose turns end without an end token.

    `place` is the template's file and key.
    """
    if turns.headers and not turns.has_prompt:
        yield ChatTurnsWrong(
            says=((*place, ""),),
            reason=f"the chat template in {place[0]} begins each turn with a header and does not "
            f"read {PROMPT}: the model has to write the header of its answer itself",
            fix=f"end the template with the header of the assistant's turn, if {PROMPT} is true",
        )
    yield from _ends(case, place, turns)
    if case.checked["chat template"].state == "incomparable":
        case.checked["chat template"] = _turns_answer(case, place[0], turns)


def _turns_answer(case: RepositoryCase, file: str, turns: Turns) -> Checked:
    """Return whether each token that ends the assistant's turns ends generation, too."""
    id_by_text = {token.text: token.id for _, token in case.added}
    texts = {_token_at_end(text, id_by_text) or "" for text in turns.ends - {END}}
    ids = {text: case.ids_of(text) for text in texts}
    if END in turns.ends:
        ids["eos_token"] = case.ids_of(end_token(case)[1])
    stops = frozenset().union(*end_ids(case).values())
    if ids and all(one and one <= stops for one in ids.values()):
        text = f"{file} parses, and ends turns with {listed(sorted(ids))}, which end generation"
        return Checked("compared", text)
    text = f"{file} parses; whether generation stops where its turns end cannot be compared"
    return Checked("incomparable", text)


def _ends(case: RepositoryCase, place: tuple[str, str], turns: Turns) -> Iterator[Finding]:
    """Report a chat template whose turns end with a token at which generation does not stop.

    The report is only a note if the end token ends documents, as in a base model that has the chat
    template of its instruct model. An end token that marks turns, but is absent from the template,
    shows that the template has another format.
    """
    id_by_text = {token.text: token.id for _, token in case.added}
    ends = {end for text in turns.ends if (end := _token_at_end(text, id_by_text))}
    stops = frozenset().union(*end_ids(case).values())
    stop_texts = [text for text, token_id in id_by_text.items() if token_id in stops]
    if not ends or not stops or len({id_by_text[text] for text in stop_texts}) < len(stops):
        return
    if turns.names_end or END in turns.ends:
        return
    if any(stop in text for stop in stop_texts for text in turns.texts):
        return
    is_of_turns = any(map(_OF_TURNS.search, stop_texts))
    why = f"the chat template in {place[0]} ends turns with another token than generation"
    case.checked["end tokens"] = Checked("incomparable", why)
    ids = sorted(id_by_text[end] for end in ends)
    yield (ChatTurnsWrong if is_of_turns else TokenizerNote)(
        says=((*place, ""),),
        reason=f"the chat template in {place[0]} ends the assistant's turns with "
        f"{listed(sorted(ends))} ({', '.join(map(str, ids))}), and generation ends at "
        f"{', '.join(map(quoted, sorted(stop_texts)))}, which the template never writes",
        fix=f"set {END_ID} of {GENERATION} to {value_text(sorted({*stops, *ids}))}, if the model "
        "was trained with this template",
    )


def _token_at_end(text: str, id_by_text: dict[str, int]) -> str | None:
    """Return the longest added token at the end of a text; None if it is absent or ends no turn."""
    text = text.rstrip()
    token = max((one for one in id_by_text if one and text.endswith(one)), key=len, default=None)
    return None if token is None or _NO_END.search(token) else token
