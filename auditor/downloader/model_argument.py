"""The model argument of a user: a path on this machine, or a model on the Hub, by id or by address.

People copy these addresses from the Hub:
https://huggingface.co/org/name[/tree/REV/FOLDER | /blob/REV/FILE | /resolve/REV/FILE?download=true]
and hf://org/name[@REV][/FILE], the form of huggingface_hub's file system.
"""

import errno
import os
import re
from pathlib import Path
from urllib.parse import unquote, urlsplit

from msgspec import Struct
from msgspec.structs import replace

from auditor.checkpoint.hub_listing import id_fault
from auditor.checkpoint.selecting import is_weights
from auditor.errors import UsageError
from auditor.messages import quoted
from auditor.redaction import hide_user

# A Hub id may end in almost anything; all known names with these three endings are files.
_FILE_ENDINGS = (".json", ".json.gz", ".safetensors")
_PATH_STARTS = ("./", "../", "/", "~", ".\\", "..\\")
_LONGEST_REVISION = 255  # bytes; git keeps a branch as a file of that name

# namespace/name:tag, as in llama.cpp; a tag is the name of a GGUF file or a part of the name.
_TAGGED = re.compile(r"([^:/]+/[^:/]+):(.*)", re.DOTALL)
_TAG = re.compile(r"[\w./+-]{1,255}", re.ASCII)

# org/name/FILE or org/name@revision/FILE: at least three parts, the last one a file that is read.
_FILE_OF_MODEL = re.compile(
    r"(?P<id>[\w][^/\s:~]*/[^/\s:]+)/(?P<place>[^\s].*\.(?:safetensors|bin|pt|pth|ckpt|gguf|json))",
    re.ASCII,
)

# Namespaces to which the Hub moved models without a namespace: `gpt2` is openai-community/gpt2 now.
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
    """A model on the Hub, at a revision."""

    id: str  # "namespace/name", or "name" for the oldest models
    revision: str | None = None  # branch, tag, commit or refs/pr/N; None: the default branch
    tag: str | None = None  # selects one of several GGUF models
    place: str | None = None  # a file or a folder of the repository; None: the complete repository

    @property
    def aliases(self) -> tuple[str, ...]:
        """The id itself, then the other names that the model may have in older or newer caches."""
        namespace, slash, name = self.id.rpartition("/")
        if not slash:
            return (self.id, *(f"{space}/{name}" for space in _LEGACY_NAMESPACES))
        return (self.id, name) if namespace in _LEGACY_NAMESPACES else (self.id,)


class StoreAddress(Struct, frozen=True):
    """The address of a folder or a file in a store, such as s3://bucket/model."""

    url: str  # without a slash at its end

    @property
    def scheme(self) -> str:
        return self.url.partition("://")[0]

    @property
    def name(self) -> str:
        """The last part of the address."""
        return self.url.rpartition("/")[2]

    @property
    def may_be_file(self) -> bool:
        """Whether the last part names a file of weights or JSON, below a bucket or a host."""
        has_parent = "/" in self.url.partition("://")[2]
        return has_parent and (is_weights(self.name) or self.name.endswith(_FILE_ENDINGS))

    @property
    def parent(self) -> "StoreAddress":
        return StoreAddress(self.url.rpartition("/")[0])


def parse_model(requested: str) -> Path | HubModel | StoreAddress:
    """Return a path if it exists, else the model that an id, an address or org/name/FILE names.

    Raise UsageError, which names the fault, if the argument cannot be parsed.
    """
    for name in (requested, requested := _trimmed(requested)):
        if _exists_here(os.path.expanduser(name)):  # noqa: PTH111 - Path.expanduser raises
            return Path(name).expanduser()
    if store := store_address(requested):
        return store
    if is_address(requested):
        return _parse_address(requested)
    match = _FILE_OF_MODEL.fullmatch(requested)
    if match and not {".", "..", ""}.intersection(requested.split("/")):
        model = parse_id(match["id"], "neither a path that exists nor a file of a Hub model")
        return replace(model, place=match["place"])
    if requested.startswith(_PATH_STARTS) or requested.endswith((*_FILE_ENDINGS, "/", "\\")):
        raise UsageError(
            f"no such file or folder here: {quoted(requested)} does not exist, or may not be read"
        )
    return parse_id(requested, "neither a path that exists nor a Hub id")


_QUOTES = " \t'\"`\N{LEFT SINGLE QUOTATION MARK}\N{RIGHT SINGLE QUOTATION MARK}"
_QUOTES += "\N{LEFT DOUBLE QUOTATION MARK}\N{RIGHT DOUBLE QUOTATION MARK}"
_ID_WITH_SLASH = re.compile(r"\w[\w.-]*/\w[\w.-]*/", re.ASCII)


def _trimmed(requested: str) -> str:
    """Return the argument without pasted quotes, and a Hub id without a slash at its end."""
    text = requested.strip(_QUOTES)
    return text[:-1] if _ID_WITH_SLASH.fullmatch(text) else text or requested


def _exists_here(path: str) -> bool:
    """Return whether the path exists on this machine; a broken or circular link counts.

    So does an unreadable path: the name of a private folder must not be sent to the Hub.
    """
    try:
        os.lstat(path)
    except OSError as error:
        return error.errno in {errno.EACCES, errno.EPERM, errno.ELOOP}
    except ValueError:  # a zero byte
        return False
    return True


def parse_id(requested: str, otherwise: str = "not a Hub id") -> HubModel:
    """Parse a Hub id, even if a path of that name exists; raise UsageError, naming the fault."""
    name, at, revision = requested.partition("@")
    match = _TAGGED.fullmatch(name)
    model_id, tag = match.groups() if match else (name, None)
    model = HubModel(id=model_id, revision=revision if at else None, tag=tag)
    fault = id_fault(model_id) or _revision_fault(model.revision)
    if fault is None and tag is not None and not _TAG.fullmatch(tag):
        fault = f"{quoted(tag)} after the ':' does not name a GGUF file, expected one like Q4_K_M"
    if fault:
        raise UsageError(f"{quoted(requested)} is {otherwise}: {fault}")
    return model


def _revision_fault(revision: str | None) -> str | None:
    """Return why git check-ref-format rejects a revision; None if the revision is valid."""
    if revision is None:
        return None
    if not revision:
        return "nothing follows the '@'; give a branch, a tag or a commit"
    if len(revision.encode(errors="replace")) > _LONGEST_REVISION:
        return f"a revision has at most {_LONGEST_REVISION} bytes"
    fault = re.search(r"[\x00-\x20\x7f-\x9f\ud800-\udfff~^:?*\[\\]|\.\.|@\{|//", revision)
    if fault:
        return f"a revision cannot contain {quoted(fault[0])}"
    if revision[0] in "-/." or revision[-1] in "/.":
        return f"{quoted(revision)} is not a revision: check its first and last character"
    return None


_ADDRESS = re.compile(r"https?://|(?:www\.)?(?:huggingface\.co|hf\.co)/", re.IGNORECASE)
_HF = "hf://"
_HOSTS = frozenset(("huggingface.co", "www.huggingface.co", "hf.co", "www.hf.co"))
_OTHER_KINDS = {
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
# The patterns are compiled at the first use; their groups are fields of a HubModel.
_HF_PATH = rf"(?P<id>[^/@]*(?:/[^/@]*)?)(?:@{_REVISION})?{_PLACE}"
_WEB_PATH = (
    rf"(?P<id>[^/]+(?:/(?!(?:{_OF_A_REVISION}|{_OTHER_PAGES})(?:/|\Z))[^/]+)?)"
    rf"(?:/(?:{_OF_A_REVISION})(?:/{_REVISION}{_PLACE})?|/(?:{_OTHER_PAGES})(?:/.*)?)?"
)


_SCHEME = re.compile(r"(?:[a-z0-9+-]*::)*([a-z][a-z0-9+-]{1,15})://.", re.DOTALL)
_OF_HF = ("hf://buckets/", "hf://datasets/")


def store_address(requested: str) -> StoreAddress | None:
    """Return the address of a store; None if the argument is another one, or an address of the Hub.

    A web server's folder ends in a slash, since most pasted addresses are pages of other sites.
    """
    scheme = _SCHEME.match(requested)
    if scheme is None or (requested.startswith(_HF) and not requested.startswith(_OF_HF)):
        return None
    if scheme[1] in {"http", "https"}:
        try:
            split = urlsplit(requested)
        except ValueError:
            return None
        is_folder = requested.endswith(("/", *_FILE_ENDINGS)) and not split.query
        if not is_folder or split.netloc.lower() in _HOSTS or split.netloc == _endpoint()[0]:
            return None
    if "::" in requested or not requested.isprintable():
        raise UsageError(f"{quoted(requested)} is not an address of one store")
    if scheme[1].startswith("http") or ":" in requested.partition("@")[0].partition("://")[2]:
        hide_user(requested)  # the user of abfs://container@account is no secret
    return StoreAddress(requested.rstrip("/"))


def is_address(requested: str) -> bool:
    return requested.startswith(_HF) or _ADDRESS.match(requested) is not None


def _parse_address(requested: str) -> HubModel:
    """Return the model that the address names; raise UsageError if it does not name one."""
    try:
        model = _hf(requested) if requested.startswith(_HF) else _web(requested)
        model = replace(model, id=model.id.removesuffix(".git"))
        if fault := id_fault(model.id) or _revision_fault(model.revision):
            raise ValueError(fault)  # noqa: TRY301 - as the others
    except ValueError as error:
        raise UsageError(f"{quoted(requested)} does not name a model of the Hub: {error}") from None
    return model


def _hf(requested: str) -> HubModel:
    path = requested.removeprefix(_HF).removeprefix("models/").rstrip("/")
    match = _match(_HF_PATH, path)
    revision = match["revision"] and unquote(match["revision"])
    return HubModel(id=match["id"], revision=revision, place=match["place"])


def _web(requested: str) -> HubModel:
    # A query or a fragment does not identify the model.
    split = urlsplit(requested if "://" in requested else f"https://{requested}")
    host, prefix = _endpoint()
    if split.netloc.lower() not in _HOSTS and split.netloc != host:
        if split.netloc.lower().endswith("modelscope.cn"):
            raise ValueError("ModelScope is not read: download the model, and audit its folder")
        detail = f"{quoted(split.netloc)} is another site"
        raise ValueError(f"{detail}; the address of a web server's folder ends in a slash")
    below = split.path.removeprefix(prefix) if split.netloc == host else split.path
    path = "/".join(part for part in below.split("/") if part)
    match = _match(_WEB_PATH, path.removeprefix("api/models/"))
    return HubModel(**{key: text and unquote(text) for key, text in match.groupdict().items()})


def _match(pattern: str, path: str) -> re.Match[str]:
    """Match the path of a model's address; raise ValueError if it does not match."""
    kind, slash, _ = path.partition("/")
    if not kind:
        raise ValueError("it has no path")
    if slash and kind in _OTHER_KINDS:
        raise ValueError(f"it is the address of {_OTHER_KINDS[kind]}")
    match = re.fullmatch(pattern, path, re.DOTALL)
    if match is None:
        raise ValueError(f"{quoted(path)} is not a page of a model")
    return match


def is_mirror() -> bool:
    """Return whether HF_ENDPOINT is another server than the Hub."""
    return _endpoint()[0] not in _HOSTS


def _endpoint() -> tuple[str, str]:
    """Return the host of HF_ENDPOINT, and its path, which some mirrors have."""
    from auditor.downloader.hub_settings import endpoint_url  # noqa: PLC0415 - 0.1 s

    url = endpoint_url()
    return url.authority, url.path
