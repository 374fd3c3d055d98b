"""`audit comment`: a Markdown report as a comment of a discussion, which later runs replace."""

from typing import NamedTuple

from auditor.publishing.hub_writing import hub_api, hub_errors

# A comment is ours if it begins with this and its author is the owner of the token. A report's text
# follows it, so that no name in a checkpoint can stand there.
MARKER = "<!-- hf-audit report -->\n"
_LONGEST = 60_000  # characters; GitHub takes 65,536
_CUT = "\n\n*The rest is cut: `audit` prints the whole report.*\n"
_SECTION = "\n<details"


class Commented(NamedTuple):
    """A comment that was posted or replaced."""

    author: str
    is_new: bool


def comment_text(report: str) -> str:
    """Return the text of a comment: the marker, then the report, which is cut if it is long."""
    text = MARKER + report
    if len(text) <= _LONGEST:
        return text
    cut = text[: _LONGEST - len(_CUT)]
    return cut[: cut.rfind(_SECTION) if _SECTION in cut else cut.rfind("\n")] + _CUT


def revision_of(repository: str, number: int, token: str | None, *, reads_only: bool) -> str | None:
    """Return the revision of a pull request; None for a discussion without files of its own.

    Raise PublishError if there is no token, unless the caller only reads.
    """
    with hub_errors(repository):
        details = hub_api(token, reads_only=reads_only).get_discussion_details(repository, number)
    return details.git_reference


def comment(repository: str, number: int, report: str, token: str | None) -> Commented:
    """Post the report in a discussion, or replace the comment that an earlier run posted there."""
    from huggingface_hub import DiscussionComment  # noqa: PLC0415 - 0.1 s

    api, text = hub_api(token), comment_text(report)
    with hub_errors(repository):
        author = str(api.whoami()["name"])
        events = api.get_discussion_details(repository, number).events
        own = [
            event
            for event in events
            if isinstance(event, DiscussionComment)
            and (event.author, event.hidden) == (author, False)
            and event.content.startswith(MARKER)
        ]
        if not own:
            api.comment_discussion(repository, number, text)
        elif own[-1].content != text:
            api.edit_discussion_comment(repository, number, own[-1].id, text)
    return Commented(author, is_new=not own)
