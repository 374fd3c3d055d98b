"""What the Hub takes: repositories, files in LFS, commits and comments; no sockets here."""

import base64
import hashlib
import json
import re
import threading
from dataclasses import dataclass, field
from fnmatch import fnmatch
from typing import Any
from urllib.parse import unquote

from .blobs import Content
from .repos import FIRST_PUSH, Repo, Shelf, is_large
from .wire import Answer, Origin, Request, as_json, plain

ID = r"(?P<id>[^/]+/[^/]+)"
PREUPLOAD = re.compile(rf"/api/models/{ID}/preupload/(?P<revision>[^/]+)")
COMMIT = re.compile(rf"/api/models/{ID}/commit/(?P<revision>[^/]+)")
BATCH = re.compile(rf"/{ID}\.git/info/lfs/objects/batch")
DISCUSSION = re.compile(rf"/api/models/{ID}/discussions/(?P<number>\d+)")
COMMENT = re.compile(rf"{DISCUSSION.pattern}/comment")
EDIT = re.compile(rf"{COMMENT.pattern}/(?P<comment>[0-9a-f]+)/edit")
STORE = re.compile(r"/lfs/(?P<oid>[0-9a-f]{64})")
WHEN = FIRST_PUSH.isoformat(timespec="milliseconds").replace("+00:00", "Z")


@dataclass(kw_only=True)
class Discussion:
    """A discussion or a pull request, with its comments in order."""

    is_pull_request: bool
    events: list[dict[str, Any]] = field(default_factory=list)


@dataclass(kw_only=True)
class Intake:
    """Changes a shelf, for callers that may write."""

    shelf: Shelf
    urls: dict[Origin, str]
    writers: dict[str, str] = field(default_factory=dict)  # token -> name of the user
    objects: dict[str, bytes] = field(default_factory=dict)  # sha256 -> a file in LFS
    discussions: dict[str, dict[int, Discussion]] = field(default_factory=dict)  # by repository
    lock: threading.Lock = field(default_factory=threading.Lock)

    def takes(self, request: Request) -> bool:
        """Whether the answer to this request is made here."""
        path = request.target.partition("?")[0]
        if request.method == "GET":
            return path == "/api/whoami-v2" or bool(DISCUSSION.fullmatch(path))
        is_api = path.startswith("/api/") or bool(BATCH.fullmatch(path))
        return request.method == "POST" and is_api

    def answer(self, request: Request, caller: str | None) -> Answer:
        path = request.target.partition("?")[0]
        user = self.writers.get(caller or "")
        if request.method == "GET" and DISCUSSION.fullmatch(path):  # public, as the repository
            user, caller = user or "anybody", caller or "anybody"
        if caller is None:
            return _refused(401, "Invalid username or password.")
        if user is None:
            return _refused(403, "You need a token with write access.")
        with self.lock:
            return self._written(request, path, user)

    def _written(self, request: Request, path: str, user: str) -> Answer:
        if path == "/api/whoami-v2":
            return as_json(200, {"name": user, "type": "user"})
        given = None if COMMIT.fullmatch(path) else json.loads(request.body or b"{}")
        if path == "/api/validate-yaml":
            return as_json(200, {"errors": [], "warnings": []})
        if path == "/api/repos/create":
            return self._create(given, user)
        kinds = {
            PREUPLOAD: self._preupload,
            BATCH: self._batch,
            COMMIT: lambda repo, found, _: self._commit(repo, found, request),
            DISCUSSION: self._discussion,
            COMMENT: lambda repo, found, given: self._comment(repo, found, given, user),
            EDIT: lambda repo, found, given: self._edit(repo, found, given, user),
        }
        for pattern, work in kinds.items():
            if found := pattern.fullmatch(path):
                repo = self.shelf.find(unquote(found["id"]))
                return work(repo, found, given) if repo else _refused(404, "Repository not found")
        return _refused(404, "Sorry, we can't find the page you are looking for.")

    def _create(self, given: Any, user: str) -> Answer:
        model_id = f"{given['organization'] or user}/{given['name']}"
        if self.shelf.find(model_id):
            known = {"error": "You already created this model repo", "url": self._url(model_id)}
            return as_json(409, known)
        self.shelf.add(Repo(id=model_id, private=given.get("visibility") == "private"))
        self.shelf.push(model_id, {".gitattributes": b"*.safetensors filter=lfs\n"}, "main")
        return as_json(200, {"url": self._url(model_id), "name": model_id, "id": model_id})

    def _url(self, model_id: str) -> str:
        return f"{self.urls[Origin.HUB]}/{model_id}"

    def _preupload(self, repo: Repo, found: re.Match[str], given: Any) -> Answer:
        commit = repo.at(unquote(found["revision"]))
        if commit is None:
            return _refused(404, "Invalid rev id", "RevisionNotFound")
        ignored = given.get("gitIgnore", "").split()
        files = []
        for one in given["files"]:
            old = commit.file(one["path"])
            files.append(
                {
                    "path": one["path"],
                    "uploadMode": "lfs" if is_large(one["path"], one["size"]) else "regular",
                    "shouldIgnore": any(fnmatch(one["path"], pattern) for pattern in ignored),
                    "oid": (old.lfs or old.oid) if old else None,
                }
            )
        return as_json(200, {"files": files})

    def _batch(self, _repo: Repo, _found: re.Match[str], given: Any) -> Answer:
        storage = self.urls[Origin.STORAGE]

        def action(one: Any) -> dict[str, Any]:
            if one["oid"] in self.objects:
                return one
            return one | {"actions": {"upload": {"href": f"{storage}/lfs/{one['oid']}"}}}

        return as_json(200, {"transfer": "basic", "objects": [*map(action, given["objects"])]})

    def store(self, request: Request) -> Answer | None:
        """The answer to a PUT of a file in LFS; None for other requests."""
        found = STORE.fullmatch(request.target)
        if request.method != "PUT" or not found:
            return None
        if hashlib.sha256(request.body).hexdigest() != found["oid"]:
            return plain(400, b"the file has another sha256")
        self.objects[found["oid"]] = request.body
        return plain(200, b"")

    def _commit(self, repo: Repo, found: re.Match[str], request: Request) -> Answer:
        revision = unquote(found["revision"])
        base = repo.at(revision)
        if base is None:
            return _refused(404, "Invalid rev id", "RevisionNotFound")
        files: dict[str, Content] = {file.name: file.content for file in base.files}
        for line in request.body.splitlines():
            one = json.loads(line)
            match one["key"], one["value"]:
                case "file", value:
                    files[value["path"]] = base64.b64decode(value["content"])
                case "lfsFile", {"oid": oid} if oid not in self.objects:
                    return _refused(400, f"the LFS object {oid} is not stored")
                case "lfsFile", value:
                    files[value["path"]] = self.objects[value["oid"]]
        is_new = "create_pr=1" in request.query
        number = 1 + len(self.discussions.get(repo.id, {})) if is_new else 0
        sha = self.shelf.push(repo.id, files, f"refs/pr/{number}" if is_new else revision)
        url = self._url(repo.id)
        if is_new:
            self.open_discussion(repo.id, is_pull_request=True)
        answer = {"commitUrl": f"{url}/commit/{sha}", "commitOid": sha, "success": True}
        return as_json(200, answer | {"pullRequestUrl": f"{url}/discussions/{number}"})

    def open_discussion(self, model_id: str, *, is_pull_request: bool) -> int:
        """Open a discussion of this repository; its number."""
        of_repo = self.discussions.setdefault(model_id, {})
        of_repo[1 + len(of_repo)] = Discussion(is_pull_request=is_pull_request)
        return len(of_repo)

    def _discussion(self, repo: Repo, found: re.Match[str], _given: Any) -> Answer:
        one = self.discussions.get(repo.id, {}).get(int(found["number"]))
        if one is None:
            return _refused(404, "Discussion not found")
        value = {
            "title": "a title",
            "num": int(found["number"]),
            "createdAt": WHEN,
            "status": "open",
            "repo": {"name": repo.id, "type": "model"},
            "isPullRequest": one.is_pull_request,
            "changes": {"base": "refs/heads/main"},
            "filesWithConflicts": [],
            "events": one.events,
        }
        return as_json(200, value)

    def _comment(self, repo: Repo, found: re.Match[str], given: Any, user: str) -> Answer:
        events = self.discussions[repo.id][int(found["number"])].events
        events.append(comment_event(len(events), user, given["comment"]))
        return as_json(200, {"newMessage": events[-1]})

    def _edit(self, repo: Repo, found: re.Match[str], given: Any, user: str) -> Answer:
        events = self.discussions[repo.id][int(found["number"])].events
        old = next(event for event in events if event["id"] == found["comment"])
        if old["author"]["name"] != user:
            return _refused(403, "You can only edit your own comments")
        old["data"] |= {"edited": True, "latest": {"raw": given["content"]}}
        return as_json(200, {"updatedComment": old})


def comment_event(number: int, author: str, text: str) -> dict[str, Any]:
    data = {"edited": False, "hidden": False, "latest": {"raw": text}}
    identity = {"id": f"{number:024x}", "type": "comment", "createdAt": WHEN}
    return identity | {"author": {"name": author}, "data": data}


def _refused(status: int, message: str, code: str | None = None) -> Answer:
    named = (("X-Error-Code", code),) if code else ()
    return as_json(status, {"error": message}, *named, ("X-Error-Message", message))
