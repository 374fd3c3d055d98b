"""The parser of chat templates, which are never rendered or run.

Templates are parsed as transformers parses them: by jinja2's sandboxed environment with loop
controls and a `generation` block. jinja2, which takes 35 ms to import, is imported for the first
template.
"""

from collections.abc import Iterable
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from auditor.companions.template_turns import Turns, turns

if TYPE_CHECKING:
    from jinja2 import Environment

# Characters of all templates of a model; the template of gpt-oss has 17,000. Parsing takes
# up to 13 us a character.
MOST_CHARACTERS = 50_000


class NotCheckedError(Exception):
    """The error for a template that was not parsed; its message is the reason."""


def import_parser() -> None:
    """Import jinja2 if it is installed; callers do this while they wait for the network."""
    with suppress(ImportError):
        _environment()


def read_templates(texts: Iterable[str]) -> dict[str, Turns | str | NotCheckedError]:
    """Map each template text to its turns, its fault, or the reason why it was not checked."""
    results: dict[str, Turns | str | NotCheckedError] = {}
    other_characters = 0
    for text in texts:
        try:
            results[text] = read_template(text, other_characters)
            other_characters += len(text)
        except NotCheckedError as error:
            results[text] = error
    return results


def read_template(text: str, other_characters: int = 0) -> Turns | str:
    """Return the turns of a template, or a sentence that says why it does not parse.

    `other_characters` is the length of the model's other templates. Raise NotCheckedError if all
    templates together are too long to parse, or if jinja2 is not installed.
    """
    if len(text) + other_characters > MOST_CHARACTERS:
        with_others = f", {len(text) + other_characters:,} with others" if other_characters else ""
        raise NotCheckedError(
            f"has {len(text):,} characters{with_others}, expected at most {MOST_CHARACTERS:,}"
        )
    try:
        from jinja2 import TemplateSyntaxError  # noqa: PLC0415 - takes 35 ms, and most audits do not need it
    except ImportError:
        raise NotCheckedError("is parsed by jinja2, which is not installed") from None
    try:
        return turns(_environment().parse(text))
    except TemplateSyntaxError as error:
        return f"line {error.lineno}: {error.message}"
    except RecursionError:  # jinja2's parser recurses, a dozen frames for each bracket or block
        raise NotCheckedError("is nested too deeply to be parsed") from None
    except (ValueError, OverflowError) as error:  # from a literal
        return f"one of its literals cannot be read: {str(error)[:100]}"


def _environment() -> "Environment":
    from jinja2 import nodes  # noqa: PLC0415 - as above
    from jinja2.ext import Extension, loopcontrols  # noqa: PLC0415
    from jinja2.sandbox import ImmutableSandboxedEnvironment  # noqa: PLC0415

    class Generation(Extension):
        """The tag `{% generation %}`, with which transformers marks the assistant's text."""

        tags = {"generation"}  # noqa: RUF012 - as jinja2 declares it

        def parse(self, parser: Any) -> Any:
            line = next(parser.stream).lineno
            body = parser.parse_statements(("name:endgeneration",), drop_needle=True)
            return nodes.Scope(body).set_lineno(line)

    return ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[Generation, loopcontrols]
    )
