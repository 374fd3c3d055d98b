"""Chat templates: they are parsed as transformers does, and never rendered or run.

They are parsed by jinja2's sandboxed environment with loop controls and a `generation` block.
jinja2, which takes 35 ms to import, is imported for the first template.

The texts that end an assistant's turn are found in the syntax tree: the loop over the messages is
read for a message of the assistant. Branches whose test is known to be false are left out, all
other branches are read. `add_generation_prompt` is false.
"""

from collections.abc import Iterable, Iterator
from contextlib import suppress
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from jinja2 import Environment, nodes

# Characters of all templates of a model; the template of gpt-oss has 17,000. Parsing takes
# up to 13 us a character.
MOST_CHARACTERS = 50_000


PROMPT = "add_generation_prompt"
_ROLE, _ASSISTANT, _END = "role", "assistant", "eos_token"


class Turns(NamedTuple):
    """The ways in which a template frames the assistant's turns."""

    ends: frozenset[str]  # the texts after the message's content; END is eos_token
    headers: bool  # whether each turn begins with text from the template
    has_prompt: bool  # whether the template reads add_generation_prompt
    texts: tuple[str, ...]  # all string literals of the template
    names_end: bool  # whether the template writes eos_token


# Outputs of nodes other than texts: the message's content, and no output at all.
_CONTENT, _PASSES = object(), object()
END = "{eos_token}"
_Outcome = frozenset[Any]


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


# --- turns --------------------------------------------------------------------------------------


def turns(tree: "nodes.Template") -> Turns:
    """Return the turns that a parsed template writes."""
    from jinja2 import nodes  # noqa: PLC0415 - takes 35 ms, and few templates are read

    loops = list(_message_loops(tree))
    names = {one.name for one in tree.find_all(nodes.Name)}
    texts = [one.data for one in tree.find_all(nodes.TemplateData)]
    texts += [one.value for one in tree.find_all(nodes.Const) if isinstance(one.value, str)]
    last = frozenset[Any]().union(*(_Reader(nodes, last=True).of_all(one.body) for one in loops))
    first = frozenset[Any]().union(*(_Reader(nodes, last=False).of_all(one.body) for one in loops))
    return Turns(
        ends=frozenset(one for one in last if isinstance(one, str)),
        headers=any(isinstance(one, str) for one in first) and _CONTENT not in first,
        has_prompt=PROMPT in names,
        texts=tuple(texts),
        names_end=_END in names,
    )


def _message_loops(node: "nodes.Node") -> Iterator["nodes.For"]:
    """Yield the outermost loops over a list with a name such as `messages`."""
    from jinja2 import nodes  # noqa: PLC0415 - as above

    for child in node.iter_child_nodes():
        if isinstance(child, nodes.For) and any(
            "message" in str(getattr(source, "name", ""))
            for source in (child.iter, *child.iter.find_all(nodes.Name))
        ):
            yield child
        else:
            yield from _message_loops(child)


class _Reader(NamedTuple):
    """A reader of the last text, or the first text, that syntax nodes write."""

    nodes: Any  # jinja2.nodes
    last: bool

    def of_all(self, children: Iterable[Any]) -> _Outcome:
        """Return the texts that the last (or first) node with any text may write."""
        ordered = [*children]
        outcome: _Outcome = frozenset((_PASSES,))
        for node in reversed(ordered) if self.last else ordered:
            if _PASSES not in outcome:
                break
            outcome = (outcome - {_PASSES}) | self._of_node(node)
        return outcome

    def _of_node(self, node: Any) -> _Outcome:
        nodes = self.nodes
        match node:
            case nodes.If():
                branches = [(one.test, one.body) for one in node.elif_]
                return self._of_branches(((node.test, node.body), *branches, (None, node.else_)))
            case nodes.CondExpr():
                else_nodes = (node.expr2,) if node.expr2 else ()
                return self._of_branches(((node.test, (node.expr1,)), (None, else_nodes)))
        parts = self._parts(node)
        return self._of_leaf(node) if parts is None else self.of_all(parts)

    def _parts(self, node: Any) -> Iterable[Any] | None:
        """Return the child nodes that a node writes in order; None if the node is a leaf."""
        nodes = self.nodes
        match node:
            case nodes.Output() | nodes.Concat():
                return list(node.nodes)
            case nodes.Add():
                return (node.left, node.right)
            case nodes.For() | nodes.Scope() | nodes.With() | nodes.FilterBlock():
                return list(node.body)
            case nodes.Filter() if node.node is not None:
                return (node.node,)
        return None

    def _of_leaf(self, node: Any) -> _Outcome:
        nodes = self.nodes
        match node:
            case nodes.TemplateData(data=str(text)) | nodes.Const(value=str(text)):
                return frozenset((text if text.strip() else _PASSES,))
            case nodes.Name(name=name) if name == _END:
                return frozenset((END,))
            case nodes.Call(node=nodes.Name(name="raise_exception")):
                return frozenset()  # the template does not write such a message
            case nodes.Expr():
                return frozenset((_CONTENT,))
        return frozenset((_PASSES,))  # a statement without output

    def _of_branches(self, branches: Iterable[tuple[Any, Iterable[Any]]]) -> _Outcome:
        """Return the texts that the branches may write; the last branch has no test."""
        outcome: _Outcome = frozenset()
        for test, body in branches:
            holds = True if test is None else self._holds(test)
            if holds is not False:
                outcome |= self.of_all(body)
            if holds is True:
                break
        return outcome

    def _holds(self, test: Any) -> bool | None:
        """Return whether a test is true for an assistant's message; None if it is not known."""
        nodes = self.nodes
        match test:
            case nodes.Not():
                inner = self._holds(test.node)
                return None if inner is None else not inner
            case nodes.And() | nodes.Or():
                decisive = isinstance(test, nodes.Or)  # the value that decides alone
                sides = (self._holds(test.left), self._holds(test.right))
                return decisive if decisive in sides else None if None in sides else not decisive
            case nodes.Name(name=name) if name == PROMPT:
                return False
            case nodes.Compare(ops=[nodes.Operand(op=op, expr=operand)]) if _is_role(test.expr):
                return _compare_role(op, operand)
        return None


def _is_role(node: Any) -> bool:
    """Return whether an expression is the message's role: `message.role`, `message['role']`."""
    key = getattr(node, "attr", None) or getattr(getattr(node, "arg", None), "value", None)
    return key == _ROLE or getattr(node, "name", None) == _ROLE


def _compare_role(op: str, operand: Any) -> bool | None:
    """Return the result of `role OP operand` for the assistant; None if it is not known."""
    values = [getattr(item, "value", None) for item in getattr(operand, "items", (operand,))]
    if None in values or op not in {"eq", "ne", "in", "notin"}:
        return None
    return (_ASSISTANT in values) == (op in {"eq", "in"})
