"""What the Hub and its storage answer to a request; no sockets here."""

import hashlib
import re
from dataclasses import dataclass, field, replace
from typing import Any
from urllib.parse import parse_qs, quote, unquote, urlencode

from .blobs import pointer
from .intake import Intake
from .listing import SORTS, commit_list, model_info, model_list, model_tree
from .quota import Meter
from .repos import Commit, File, Repo, Shelf
from .wire import Answer, Cut, Headers, Origin, Request, as_json, plain

ID = r"(?P<id>[^/]+(?:/[^/]+)?)"
REVISION = r"(?P<revision>refs/[^/]+/[^/]+|[^/]+)"
MODEL = re.compile(rf"/api/models/{ID}(?:/revision/(?P<revision>.+))?")
COMMITS = re.compile(rf"/api/models/{ID}/commits/{REVISION}")
TREE = re.compile(rf"/api/models/{ID}/tree/{REVISION}")
RESOLVE = re.compile(rf"/{ID}/(?P<how>resolve|raw)/{REVISION}/(?P<file>.+)")
CACHED = re.compile(rf"/api/resolve-cache/models/{ID}/(?P<revision>[0-9a-f]{{40}})/(?P<file>.+)")
STORED = re.compile(rf"/xet/{ID}/(?P<revision>[0-9a-f]{{40}})/(?P<file>.+)")
DESCRIBED = {MODEL: model_info, COMMITS: commit_list, TREE: model_tree}
RANGE = re.compile(r"\s*bytes\s*=\s*(\d*)\s*-\s*(\d*)\s*")
RANGES = ("Accept-Ranges", "bytes")


class Refusal(Exception):  # noqa: N818 (an answer, not an error)
    """Raised where the answer is known before the work is done."""

    def __init__(self, answer: Answer) -> None:
        super().__init__(answer.status)
        self.answer = answer


@dataclass(kw_only=True)
class Desk:
    """Answers requests from a shelf of repositories."""

    shelf: Shelf
    meter: Meter
    intake: Intake
    resolve_cache: bool = False  # small files by way of a 307, as the Hub has done since 2025
    grants: dict[str, frozenset[str]] = field(default_factory=dict)  # token -> ids it may read
    urls: dict[Origin, str] = field(default_factory=dict)

    def answer(self, request: Request) -> Answer:
        if request.origin is Origin.STORAGE:
            return _unless_refused(self._stored, request)
        if self.intake.takes(request):
            return _unless_refused(self._write, request)
        kind = _metered(request.path)
        if kind is None:
            return _unless_refused(self._route, request)
        allowed, headers = self.meter.spend(kind)
        answer = _unless_refused(self._route, request) if allowed else _too_many()
        return replace(answer, headers=(*answer.headers, *headers))

    def _write(self, request: Request) -> Answer:
        return self.intake.answer(request, self._caller(request))

    def _route(self, request: Request) -> Answer:
        path = request.target.partition("?")[0]
        caller = self._caller(request)
        if path == "/api/models":
            return self._list(request, caller)
        if found := CACHED.fullmatch(path):
            repo, commit, file = self._file(request, caller, found)
            return serve(request, file, *_identity(commit, file))
        for pattern, described in DESCRIBED.items():
            if found := pattern.fullmatch(path):
                repo = self._repo(request, caller, found)
                commit = _commit(repo, unquote(found["revision"] or "main"))
                return as_json(200, described(repo, commit, request.query))
        if found := RESOLVE.fullmatch(path):
            return self._resolve(request, caller, found)
        return as_json(404, {"error": "Sorry, we can't find the page you are looking for."})

    def _caller(self, request: Request) -> str | None:
        """The token of the request; None: anonymous."""
        given = request.header("Authorization")
        if given is None:
            return None
        token = given.removeprefix("Bearer ")
        if token not in self.grants:
            raise Refusal(_error(401, None, "Invalid credentials in Authorization header"))
        return token

    def _may_read(self, caller: str | None, repo: Repo) -> bool:
        writes = caller in self.intake.writers
        return caller is not None and (writes or repo.id in self.grants[caller])

    def _list(self, request: Request, caller: str | None) -> Answer:
        sort = parse_qs(request.query).get("sort", ["downloads"])[0]
        if sort not in SORTS:
            return _error(400, None, f"Invalid sort parameter {sort!r}")
        shown = [r for r in self.shelf.all() if not r.private or self._may_read(caller, r)]
        page, more = model_list(shown, request.query)
        link = () if more is None else (self._link(more),)
        return as_json(200, page, *link)

    def _link(self, query: str) -> tuple[str, str]:
        return "Link", f'<{self.urls[Origin.HUB]}/api/models?{query}>; rel="next"'

    def _repo(self, request: Request, caller: str | None, found: re.Match[str]) -> Repo:
        name = unquote(found["id"])
        repo = self.shelf.find(name)
        if repo is None or (repo.private and not self._may_read(caller, repo)):
            status = 401 if caller is None else 404
            said = "Invalid username or password." if caller is None else "Repository not found"
            raise Refusal(_error(status, "RepoNotFound", "Repository not found", said))
        if repo.disabled:
            message = "Access to this resource is disabled."
            raise Refusal(_error(403, "DisabledRepo", message))
        if repo.id != name:
            before, after = request.target[: found.start("id")], request.target[found.end("id") :]
            raise Refusal(_redirect(307, before + quote(repo.id) + after))
        return repo

    def _file(
        self, request: Request, caller: str | None, found: re.Match[str]
    ) -> tuple[Repo, Commit, File]:
        repo = self._repo(request, caller, found)
        if repo.gated and not self._may_read(caller, repo):
            raise Refusal(_gated(repo, caller))
        commit = _commit(repo, unquote(found["revision"]))
        file = commit.file(unquote(found["file"]))
        if file is None:
            missing = _error(404, "EntryNotFound", "Entry not found")
            raise Refusal(replace(missing, headers=(*missing.headers, _at(commit))))
        return repo, commit, file

    def _resolve(self, request: Request, caller: str | None, found: re.Match[str]) -> Answer:
        repo, commit, file = self._file(request, caller, found)
        if found["how"] == "raw":
            return _raw(request, commit, file)
        if file.lfs:
            linked = (("X-Linked-Size", str(file.size)), ("X-Linked-ETag", file.etag))
            return _redirect(302, self._signed(request, repo, commit, file), _at(commit), *linked)
        if self.resolve_cache:
            return _redirect(307, _cached(request, repo, commit, file), *_identity(commit, file))
        return serve(request, file, *_identity(commit, file))

    def _signed(self, request: Request, repo: Repo, commit: Commit, file: File) -> str:
        path = quote(f"/xet/{repo.id}/{commit.sha}/{file.name}")
        wanted = request.header("Range") or ""
        query = urlencode({"X-Xet-Signed-Range": wanted, "Signature": _signature(path, wanted)})
        return f"{self.urls[Origin.STORAGE]}{path}?{query}"

    def _stored(self, request: Request) -> Answer:
        if stored := self.intake.store(request):
            return stored
        path = request.target.partition("?")[0]
        params = dict(parse_qs(request.query))
        wanted = request.header("Range") or ""
        if params.get("Signature") != [_signature(path, wanted)]:
            said = b"<Error><Code>AccessDenied</Code><Message>invalid range</Message></Error>"
            return plain(403, said, "application/xml")
        found = STORED.fullmatch(path)
        repo = self.shelf.find(unquote(found["id"])) if found else None
        commit = repo.at(found["revision"]) if found and repo else None
        file = commit.file(unquote(found["file"])) if found and commit else None
        if file is None:
            return plain(404, b"<Error><Code>NoSuchKey</Code></Error>", "application/xml")
        return serve(request, file, ("ETag", file.etag))


def span(wanted: str | None, size: int) -> tuple[int, int] | None:
    """The bytes [start, stop) that a Range header asks for; None: all of them, by a 200.

    Several ranges, and what is not a range of bytes, are ignored, as a server may.
    """
    found = RANGE.fullmatch(wanted or "")
    if not found or found.groups() == ("", ""):
        return None
    first, last = found.groups()
    if not first:
        return max(0, size - int(last)), size
    stop = min(int(last) + 1, size) if last else size
    return int(first), stop


def serve(request: Request, file: File, *extra: tuple[str, str]) -> Answer:
    """The file, or the range of it that was asked for."""
    kind = ("Content-Type", "application/octet-stream" if file.lfs else "text/plain; charset=utf-8")
    part = span(request.header("Range"), file.size)
    if part is not None and part[0] >= part[1]:
        answer = plain(416, b"Requested range not satisfiable")
        return replace(answer, headers=(*answer.headers, ("Content-Range", f"bytes */{file.size}")))
    start, stop = part or (0, file.size)
    headers: Headers = (kind, ("Content-Length", str(stop - start)), RANGES, *extra)
    if part:
        headers = (*headers, ("Content-Range", f"bytes {start}-{stop - 1}/{file.size}"))
    body = Cut(content=file.content, start=start, stop=stop)
    return Answer(status=206 if part else 200, headers=headers, body=body, file=file.content)


def _raw(request: Request, commit: Commit, file: File) -> Answer:
    """What git itself has: of a file in LFS its pointer."""
    if file.lfs:
        content = pointer(file.lfs, file.size)
        file = replace(file, content=content, size=len(content), lfs=None)
    return serve(request, file, *_identity(commit, file))


def _unless_refused(work: Any, request: Request) -> Answer:
    try:
        return work(request)
    except Refusal as refusal:
        return refusal.answer


def _metered(path: str) -> str | None:
    """The window that a path is counted in; resolve-cache is a cache's and is not counted."""
    if "/resolve/" in path:
        return "resolvers"
    return "api" if path.startswith("/api/") and "/resolve-cache/" not in path else None


def _commit(repo: Repo, revision: str) -> Commit:
    commit = repo.at(revision)
    if commit is None:
        raise Refusal(_error(404, "RevisionNotFound", f"Invalid rev id: {revision}"))
    return commit


def _at(commit: Commit) -> tuple[str, str]:
    return "X-Repo-Commit", commit.sha


def _identity(commit: Commit, file: File) -> Headers:
    return _at(commit), ("ETag", file.etag)


def _cached(request: Request, repo: Repo, commit: Commit, file: File) -> str:
    path = quote(f"/api/resolve-cache/models/{repo.id}/{commit.sha}/{file.name}")
    return f"{path}?{urlencode({request.path: '', 'etag': file.etag})}"


def _signature(path: str, wanted: str) -> str:
    return hashlib.sha256(f"{path} {wanted}".encode()).hexdigest()[:32]


def _redirect(status: int, location: str, *extra: tuple[str, str]) -> Answer:
    said = "Found" if status == 302 else "Temporary Redirect"
    body = f"{said}. Redirecting to {location}".encode()
    return plain(status, body, "text/plain; charset=utf-8", ("Location", location), *extra)


def _error(status: int, code: str | None, message: str, said: str | None = None) -> Answer:
    named = () if code is None else (("X-Error-Code", code),)
    return as_json(status, {"error": said or message}, *named, ("X-Error-Message", message))


def _gated(repo: Repo, caller: str | None) -> Answer:
    if caller is None:
        message = (
            f"Access to model {repo.id} is restricted. You must have access to it and be"
            " authenticated to access it. Please log in."
        )
        return _error(401, "GatedRepo", message)
    message = (
        f"Access to model {repo.id} is restricted and you are not in the authorized list."
        f" Visit https://huggingface.co/{repo.id} to ask for access."
    )
    return _error(403, "GatedRepo", message)


def _too_many() -> Answer:
    return as_json(429, {"error": "We had to rate limit you. Please retry later."})
