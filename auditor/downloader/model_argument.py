"""The model argument of a user: a path on this machine, or a model on the Hub, by id or by address.

Addresses are those that people copy from the Hub:
https://huggingface.co/org/name[/tree/REV/FOLDER | /blob/REV/FILE | /resolve/REV/FILE?download=true]
and hf://org/name[@REV][/FILE], as huggingface_hub's file system has it.
"""

import errno
import os
import re
from pathlib import Path
from urllib.parse import unquote, urlsplit

from msgspec import Struct
from msgspec.structs import replace

from auditor.checkpoint.hub_listing import id_fault
from auditor.errors import UsageError
from auditor.messages import quoted

# A Hub id may end in almost anything; these three endings are files wherever they were seen.
_FILE_ENDINGS = (".json", ".json.gz", ".safetensors")
_PATH_STARTS = ("./", "../", "/", "~", ".\\", "..\\")
_LONGEST_REVISION = 255  # bytes; a branch is a file name to git

# namespace/name:tag, as llama.cpp has it; a tag is part of the name of a GGUF file, or all of it.
_TAGGED = re.compile(r"([^:/]+/[^:/]+):(.*)", re.DOTALL)
_TAG = re.compile(r"[\w./+-]{1,255}", re.ASCII)

# org/name/FILE or org/name@revision/FILE: three parts at least, the last a file that is read.
_FILE_OF_MODEL = re.compile(
    r"(?P<id>[\w][^/\s:~]*/[^/\s:]+)/(?P<place>[^\s].*\.(?:safetensors|bin|pt|pth|ckpt|gguf|json))",
    re.ASCII,
)

# Namespaces to which the Hub moved the models that had none: `gpt2` is now openai-community/gpt2.
_LEGACY_NAMESPACES = (
    "google-bert",
    "openai-community",
    "FacebookAI",
    "distilbert",
    "google-t5",
    "albert",
    "xlnet",
    "almanach",
    "transfo-xl",
    "Salesforce",
)


class HubModel(Struct, frozen=True, kw_only=True):
    """A model of the Hub, and where in its history."""

    id: str  # "namespace/name", or "name" for the oldest models
    revision: str | None = None  # branch, tag, commit or refs/pr/N; None: the default branch
    tag: str | None = None  # which of several GGUF models; None: the only one
    place: str | None = None  # the file or the folder that is meant; None: the model

    @property
    def aliases(self) -> tuple[str, ...]:
        """The id itself, then the names that the same model may go by in older or newer caches."""
        namespace, slash, name = self.id.rpartition("/")
        if not slash:
            return (self.id, *(f"{space}/{name}" for space in _LEGACY_NAMESPACES))
        return (self.id, name) if namespace in _LEGACY_NAMESPACES else (self.id,)


def parse_model(requested: str) -> Path | HubModel:
    """A path that exists, else a Hub id, a pasted address or a file of a model on the Hub.

    Raises UsageError, naming the fault, for anything else.
    """
    if _is_here(os.path.expanduser(requested)):  # noqa: PTH111 - Path.expanduser raises
        return Path(requested).expanduser()
    if is_address(requested):
        return _of_address(requested)
    found = _FILE_OF_MODEL.fullmatch(requested)
    if found and not {".", "..", ""}.intersection(requested.split("/")):
        model = parse_id(found["id"], "neither a path that exists nor a file of a Hub model")
        return replace(model, place=found["place"])
    if requested.startswith(_PATH_STARTS) or requested.endswith(_FILE_ENDINGS):
        raise UsageError(
            f"the file or folder {quoted(requested)} does not exist, or may not be read"
        )
    return parse_id(requested, "neither a path that exists nor a Hub id")


def _is_here(path: str) -> bool:
    """Whether the name is taken on this machine: by a link to nothing or to itself, too.

    So is one that may not be looked at, and one behind links that go round: it is not for the Hub
    to be asked for what somebody keeps in a folder of that name.
    """
    try:
        os.lstat(path)
    except OSError as error:
        return error.errno in {errno.EACCES, errno.EPERM, errno.ELOOP}
    except ValueError:  # a zero byte
        return False
    return True


def parse_id(requested: str, otherwise: str = "no Hub id") -> HubModel:
    """A Hub id, whatever paths exist; raises UsageError, naming the fault, for anything else."""
    name, at, revision = requested.partition("@")
    found = _TAGGED.fullmatch(name)
    model_id, tag = found.groups() if found else (name, None)
    model = HubModel(id=model_id, revision=revision if at else None, tag=tag)
    fault = id_fault(model_id) or _revision_fault(model.revision)
    if fault is None and tag is not None and not _TAG.fullmatch(tag):
        fault = f"{quoted(tag)} after the ':' names no GGUF file; Q4_K_M would"
    if fault:
        raise UsageError(f"{quoted(requested)} is {otherwise}: {fault}")
    return model


def _revision_fault(revision: str | None) -> str | None:
    """Return the reason a text is not a branch, tag or commit (git check-ref-format), else None."""
    if revision is None:
        return None
    if not revision:
        return "nothing follows the '@'; give a branch, a tag or a commit"
    if len(revision.encode(errors="replace")) > _LONGEST_REVISION:
        return f"a revision has {_LONGEST_REVISION} bytes at most"
    strange = re.search(r"[\x00-\x20\x7f-\x9f\ud800-\udfff~^:?*\[\\]|\.\.|@\{|//", revision)
    if strange:
        return f"a revision holds no {quoted(strange[0])}"
    if revision[0] in "-/." or revision[-1] in "/.":
        return f"{quoted(revision)} is not a revision: check how it starts and ends"
    return None


_ADDRESS = re.compile(r"https?://|(?:www\.)?(?:huggingface\.co|hf\.co)/", re.IGNORECASE)
_HF = "hf://"
_HOSTS = frozenset(("huggingface.co", "www.huggingface.co", "hf.co", "www.hf.co"))
_OTHERS = {
    "datasets": "a dataset",
    "spaces": "a space",
    "papers": "a paper",
    "docs": "a document",
    "api": "another part of the API",
}

_OF_A_REVISION = "tree|blob|resolve|raw|blame|commits?|revision"
_OTHER_PAGES = "discussions|community|settings|edit|upload"
_REVISION = r"(?P<revision>refs/[^/]+/[^/]+|[^/]*)"
_PLACE = r"(?:/(?P<place>.*))?"
# Compiled where they are first used; their groups are fields of a HubModel.
_HF_PATH = rf"(?P<id>[^/@]*(?:/[^/@]*)?)(?:@{_REVISION})?{_PLACE}"
_WEB_PATH = (
    rf"(?P<id>[^/]+(?:/(?!(?:{_OF_A_REVISION}|{_OTHER_PAGES})(?:/|\Z))[^/]+)?)"
    rf"(?:/(?:{_OF_A_REVISION})(?:/{_REVISION}{_PLACE})?|/(?:{_OTHER_PAGES})(?:/.*)?)?"
)


def is_address(requested: str) -> bool:
    return requested.startswith(_HF) or _ADDRESS.match(requested) is not None


def _of_address(requested: str) -> HubModel:
    """The model that the address names; raises UsageError if it names no model of the Hub."""
    try:
        found = _hf(requested) if requested.startswith(_HF) else _web(requested)
    except ValueError as error:
        raise UsageError(f"{quoted(requested)} names no model of the Hub: {error}") from None
    found = replace(found, id=found.id.removesuffix(".git"))
    if fault := id_fault(found.id) or _revision_fault(found.revision):
        raise UsageError(f"{quoted(requested)} names no model of the Hub: {fault}")
    return found


def _hf(requested: str) -> HubModel:
    path = requested.removeprefix(_HF).removeprefix("models/").rstrip("/")
    found = _matched(_HF_PATH, path)
    revision = found["revision"] and unquote(found["revision"])
    return HubModel(id=found["id"], revision=revision, place=found["place"])


def _web(requested: str) -> HubModel:
    # What follows a ? or a # says nothing about the model.
    split = urlsplit(requested if "://" in requested else f"https://{requested}")
    if split.netloc.lower() not in _HOSTS and split.netloc != _asked_host():
        raise ValueError(f"{quoted(split.netloc)} is another site")
    path = "/".join(part for part in split.path.split("/") if part)
    found = _matched(_WEB_PATH, path.removeprefix("api/models/"))
    return HubModel(**{key: text and unquote(text) for key, text in found.groupdict().items()})


def _matched(pattern: str, path: str) -> re.Match[str]:
    """The parts of an address; raises ValueError where it is not that of a model."""
    kind, slash, _ = path.partition("/")
    if not kind:
        raise ValueError("it ends with the site")
    if slash and kind in _OTHERS:
        raise ValueError(f"it is the address of {_OTHERS[kind]}")
    found = re.fullmatch(pattern, path, re.DOTALL)
    if found is None:
        raise ValueError(f"{quoted(path)} is no page of a model")
    return found


def _asked_host() -> str:
    from auditor.downloader.hub_settings import endpoint_url  # noqa: PLC0415 - 0.1 s

    return endpoint_url().authority
