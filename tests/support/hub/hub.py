"""The Hub that a test talks to: two origins, models, a log, and misbehaviour on demand."""

import time
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import replace
from typing import Self

from .blobs import read
from .faults import OFTEN_SEEN, Fault
from .intake import Intake
from .log import Log, Record
from .protocol import Desk
from .quota import Meter, Quota
from .repos import Files, Gate, Repo, Shelf
from .script import Dice, Rule, Script
from .server import Server
from .wire import Answer, Origin, Request


class Hub:
    """A Hugging Face Hub on loopback; a context manager.

    with Hub() as hub:
        hub.add("org/name", {"config.json": b"{}", "model.safetensors": Sparse(head, 5 * 10**9)})
        ... HF_ENDPOINT=hub.url ...
        assert [record.path for record in hub.log] == [...]
    """

    def __init__(
        self,
        *,
        port: int = 0,
        quota: Quota | None = None,
        resolve_cache: bool = False,
        prefix: str = "",
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._prefix = prefix  # of every path, as mirrors have it that share a host
        self._journal = Log()
        self._shelf = Shelf()
        self._meter = Meter(quota or Quota(), clock)
        self._script = Script()
        self.intake = Intake(shelf=self._shelf, urls={})
        self._desk = Desk(
            shelf=self._shelf, meter=self._meter, intake=self.intake, resolve_cache=resolve_cache
        )
        self._port = port
        self._servers: dict[Origin, Server] = {}

    def __enter__(self) -> Self:
        ports = {Origin.HUB: self._port, Origin.STORAGE: 0}
        self._servers = {
            origin: Server(origin, port, self._answer, self._journal)
            for origin, port in ports.items()
        }
        urls = {origin: server.url for origin, server in self._servers.items()}
        self._desk.urls = self.intake.urls = urls
        return self

    def __exit__(self, *_: object) -> None:
        for server in self._servers.values():
            server.stop()
        for failure in [f for server in self._servers.values() for f in server.failures]:
            raise failure

    @property
    def url(self) -> str:
        """What HF_ENDPOINT should be."""
        return self._servers[Origin.HUB].url

    @property
    def storage_url(self) -> str:
        """The origin of LFS files: the same host, another port."""
        return self._servers[Origin.STORAGE].url

    def add(  # noqa: PLR0913 (keywords that a test names one or two of)
        self,
        id: str,  # noqa: A002 (the Hub's word)
        files: Files,
        *,
        aliases: Iterable[str] = (),
        refs: Mapping[str, Files] | None = None,
        lfs: Collection[str] | None = None,
        gated: Gate = False,
        private: bool = False,
        disabled: bool = False,
        tags: Iterable[str] = (),
        downloads: int = 0,
        card: Mapping[str, object] | None = None,
    ) -> str:
        """Add a model with these files on main, and others on `refs`; the sha of main."""
        repo = Repo(
            id=id,
            aliases=tuple(aliases),
            gated=gated,
            private=private,
            disabled=disabled,
            tags=tuple(tags),
            downloads=downloads,
            lfs=lfs,
            card=card,
        )
        self._shelf.add(repo)
        for ref, others in (refs or {}).items():
            self.push(id, others, revision=ref)
        return self.push(id, files)

    def push(
        self,
        id: str,  # noqa: A002
        files: Files,
        *,
        revision: str = "main",
        authors: Iterable[str] | None = None,
    ) -> str:
        """Move (or make) a branch, tag or refs/pr/N to a commit with exactly these files."""
        authors = (id.partition("/")[0],) if authors is None else tuple(authors)
        return self._shelf.push(id, files, revision, authors)

    def grant(self, token: str, *ids: str) -> None:
        """Make a token valid, and let it read these private or gated models."""
        known = self._desk.grants.get(token, frozenset())
        self._desk.grants = {**self._desk.grants, token: known | set(ids)}

    def let_write(self, token: str, user: str = "org") -> None:
        """Make a token valid, and let this user write everything with it."""
        self.grant(token)
        self.intake.writers[token] = user

    def stored(self, id: str, revision: str = "main") -> dict[str, bytes] | None:  # noqa: A002
        """The files of a model at this revision; None without the model or the revision."""
        repo = self._shelf.find(id)
        commit = repo.at(revision) if repo else None
        if commit is None:
            return None
        return {file.name: read(file.content, 0, file.size) for file in commit.files}

    def limit(self, quota: Quota) -> None:
        """Open a new window under this quota."""
        self._meter.start_over(quota)

    def misbehave(  # noqa: PLR0913 (keywords that a test names one or two of)
        self,
        *,
        fault: Fault,
        path: str = "*",
        method: str = "*",
        origin: Origin | str | None = None,
        times: int | None = None,
        skip: int = 0,
    ) -> None:
        """Spoil the answers to matching requests: after the first `skip`, the next `times`.

        `path` is a glob over the unquoted path without the query; the file's name stands in it on
        both origins. times=None: always. Of several rules the first that matches is used.
        """
        rule = Rule(fault=fault, path=path, method=method, origin=origin, times=times, skip=skip)
        self._script.rule(rule)

    def misbehave_at_random(
        self, *, rate: float, seed: int, faults: Iterable[Fault] = OFTEN_SEEN, path: str = "*"
    ) -> None:
        """Spoil this share of the answers.

        The draw depends on the seed, the request and how often it came before, not on the order in
        which threads arrive: the same requests fail in every run.
        """
        dice = Dice(rate=rate, seed=seed, faults=tuple(faults), path=path)
        self._script.at_random(dice)

    def behave(self) -> None:
        """Forget all misbehaviour."""
        self._script.clear()

    def clear(self) -> None:
        """Forget all models, all misbehaviour and the log."""
        self._shelf.clear()
        self.behave()
        self.reset_log()

    @property
    def log(self) -> tuple[Record, ...]:
        """What was asked since the start or the last reset, in order of arrival."""
        return self._journal.records()

    def reset_log(self) -> None:
        self._journal.reset()

    def _answer(self, request: Request) -> tuple[Answer, Fault | None]:
        if self._prefix and request.origin is Origin.HUB:
            request = replace(request, target=request.target.removeprefix(self._prefix))
        answer = self._desk.answer(request)
        fault = self._script.choose(request, answer)
        return (fault.spoil(request, answer) if fault else answer), fault
