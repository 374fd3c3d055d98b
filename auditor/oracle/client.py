"""The client of the oracle: questions to a separate process, with bounds and a cache."""

import atexit
import json
import os
import subprocess
import sys
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import lru_cache
from hashlib import sha256
from operator import itemgetter
from pathlib import Path
from signal import Signals
from threading import Lock
from typing import IO, Any, NamedTuple, TypeVar, cast

from msgspec import Struct, ValidationError, convert

from auditor import oracle
from auditor.analytic import Config, Expectation, expectation, kv_cache, loading
from auditor.analytic.kv_cache import KVCache
from auditor.analytic.tree_expectation import Sibling
from auditor.bounded.json_text import examined
from auditor.errors import CheckpointError, Reason, SourceError
from auditor.oracle.server import MOST_SECONDS, from_json
from auditor.oracle.transformers_classes import InstalledLibrary, installed_library
from auditor.writing import write_atomically

# Keys about the origin of a config, left out so that fine-tunes of one base share one answer.
_WRITERS = frozenset({"_name_or_path", "architectures"})
_T = TypeVar("_T")


class Oracle:
    """A source of expectations from one library, with the interface of `catalogue`.

    Only transformers lists its classes by model type.
    """

    def __init__(self, library: InstalledLibrary, folder: Path, process: "Process") -> None:
        self.name = library.name
        self.unknown = f"neither a closed form nor a class of {library.name} is known for"
        self._library = library
        self._folder = folder
        self._process = process
        # An answer of earlier code may be wrong.
        self._code = _code()

    def types(self, name: str, /) -> tuple[str, ...]:
        return self._library.types(name)

    def class_names(self) -> tuple[str, ...]:
        """The classes that auto classes build, unsorted."""
        return tuple(name for listed in self._library.listed.values() for name in listed)

    def siblings(self, model_type: str, /) -> tuple[str, ...]:
        return self._library.listed.get(model_type, ())

    def base_class(self, model_type: str, /) -> str:
        return self._library.listed[model_type][0]

    def auto_class(self, name: str, model_type: str, /) -> str | None:
        return self._library.autos.get(name, {}).get(model_type)

    def current(self, name: str, /) -> str:
        return name

    def current_type(self, model_type: str, /) -> str:
        return model_type

    def inside(self, model_type: str, /) -> Mapping[str, str]:
        del model_type  # the oracle's process finds nested models: see oracle/build.py
        return {}

    def expect(self, config: Config, target: str, /) -> Expectation:
        """Return all tensors and modules of a class with this config.

        Raise CheckpointError for a config from which the class cannot be built, and SourceError if
        the library cannot build the class at all, or not within the oracle's bounds.
        """

        def decoded(answer: object) -> Expectation | None:
            match answer:
                case {"fault": str(fault)}:
                    raise CheckpointError(fault)
            return from_json(answer, target, self.name)

        expectation = self._answered(decoded, config, target)
        if expectation is None:
            raise CheckpointError(f"{target}: no answer of the oracle's")
        return expectation

    def cache(self, config: Config, target: str) -> KVCache | None:
        """Return the cache that a class of transformers fills; None if it is not known."""

        def decoded(answer: object) -> _CacheAnswer | None:
            try:
                return convert(answer, examined(_CacheAnswer))
            except ValidationError:
                return None

        try:
            answer = self._answered(decoded, config, target, "cache")
        except SourceError:
            return None
        return answer.cache if answer else None

    def _answered(
        self, decoded: Callable[[object], _T | None], config: Config, target: str, *wanted: str
    ) -> _T | None:
        """Return the decoded answer: a stored one, else the one of the process, which is stored."""
        values = {key: value for key, value in config.values.items() if key not in _WRITERS}
        question = json.dumps([self._library.key, target, values, *wanted], sort_keys=True)
        digest = sha256(f"{self.name}\n{self._code}\n{question}".encode()).hexdigest()
        key = f"{target}-{digest[:32]}"
        known = decoded(read_answer(self._folder, key))
        if known is not None:
            return known
        answer = self._process.ask(question, target, self._library.key)
        keep_answer(self._folder, key, answer)
        return decoded(answer)

    def sibling(self, config: Config, target: str, /) -> Sibling:
        expectation = self.expect(config, target)
        return Sibling(target, expectation.prefix, expectation.renamed, expectation.loading)


class _CacheAnswer(Struct, frozen=True):
    """The answer to a question for a cache."""

    cache: KVCache | None


def _code() -> str:
    """Return a digest of the source files on which answers depend: the oracle and its records."""
    digest = sha256()
    own = sorted(Path(oracle.__file__).parent.glob("*.py"))
    written = (expectation, kv_cache, loading)
    for path in (*own, *(Path(one.__file__ or "") for one in written)):
        digest.update(path.read_bytes())
    return digest.hexdigest()


@lru_cache(maxsize=3)
def available_oracle(key: str = "transformers") -> Oracle | None:
    """Return the oracle of a library, without importing it; None if it or torch is missing."""
    library = installed_library(key)
    return None if library is None else Oracle(library, cache_folder(), _process())


@lru_cache(maxsize=1)
def _process() -> "Process":
    """Return the process of all libraries' oracles."""
    process = Process()
    atexit.register(process.end)
    return process


# --- the process ------------------------------------------------------------------------------

# -P: Python must not import a torch.py from the audited folder.
_COMMAND = (sys.executable, "-P", "-c", "from auditor.oracle.server import serve; serve()")
_PATIENCE = 10.0  # seconds from the end of a process's output to its exit


class _Running(NamedTuple):
    process: subprocess.Popen[str]
    questions: IO[str]
    answers: IO[str]


class Process:
    """The process of `oracle.server`, started by the first question, restarted if it ended."""

    def __init__(self, command: tuple[str, ...] = _COMMAND) -> None:
        self._command = command
        self._running: _Running | None = None
        self._turn = Lock()  # one question at a time
        if hasattr(os, "register_at_fork"):
            os.register_at_fork(after_in_child=self._forget)

    def ask(self, question: str, target: str, library: str) -> object:
        """Send a question, a line of JSON, and return the answer, or raise SourceError."""
        with self._turn:
            line = self._answered(question)
            if not line:
                raise _no_answer(self.end(patience=_PATIENCE), target, library)
            answer = json.loads(line)
            if "reason" not in answer:
                return answer
            error = SourceError(Reason(answer["reason"]), answer["detail"])
            if error.reason is Reason.TOO_LARGE:
                self.end()  # frees the memory of the process
            raise error

    def _forget(self) -> None:
        """Leave the process to the parent of this fork; the next question starts another one."""
        if self._running is not None:
            self._running.process.returncode = 0  # not a child of this process: nobody waits for it
        self._running, self._turn = None, Lock()

    def _answered(self, question: str) -> str:
        self._running = self._running or _started(self._command)
        try:
            self._running.questions.write(f"{question}\n")
            self._running.questions.flush()
            return self._running.answers.readline()
        except BrokenPipeError:
            return ""
        except BaseException:  # interrupted: the next question would receive this answer
            self.end()
            raise

    def end(self, *, patience: float = 0) -> int:
        """Wait `patience` seconds for the process to end, then kill it; return its exit code."""
        if self._running is None:
            return 0
        process, self._running = self._running.process, None
        with suppress(subprocess.TimeoutExpired):
            process.wait(patience)
        process.kill()
        with suppress(BrokenPipeError), process:  # closes the pipes
            pass
        return process.wait()


def _started(command: tuple[str, ...]) -> _Running:
    process = subprocess.Popen(  # noqa: S603 - our own code
        command,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        encoding="ascii",
    )
    return _Running(process, cast(IO[str], process.stdin), cast(IO[str], process.stdout))


def _no_answer(code: int, target: str, library: str) -> SourceError:
    """Return the error for a process that ended; a negative code is the signal that ended it."""
    how = Signals(-code).name if code < 0 else f"exit code {code}"
    if how == "SIGALRM":
        detail = f"{library} took more than {MOST_SECONDS} seconds to build {target}"
        return SourceError(Reason.TOO_LARGE, detail)
    detail = f"the process that was to build {target} ended with {how}"
    return SourceError(Reason.UNKNOWN_ARCHITECTURE, detail)


# --- the cache of answers on disk -----------------------------------------------------------------


# The answer for a BERT has 15 KB, an answer of 92,000 tensors 7 MB.
MOST_BYTES_OF_ONE = 2**25
MOST_BYTES = 2**28
MOST_FILES = 4096


def cache_folder() -> Path:
    """Return the folder of cached answers, in HF_HOME."""
    from huggingface_hub import constants  # noqa: PLC0415 - 0.1 s, only where the oracle is asked

    return Path(constants.HF_HOME) / "hf-audit" / "oracle"


def read_answer(folder: Path, key: str) -> Any | None:
    """Return the cached answer of a key; None if it is missing or unreadable."""
    path = folder / f"{key}.json"
    try:
        if path.stat().st_size > MOST_BYTES_OF_ONE:
            return None
        answer = json.loads(path.read_bytes())
    except (OSError, ValueError, RecursionError):
        return None
    with suppress(OSError):
        os.utime(path)  # mark the answer as recently used
    return answer


def keep_answer(folder: Path, key: str, answer: Any) -> None:
    """Write an answer and remove the least recently used ones; a full disk is not an error."""
    content = json.dumps(answer, separators=(",", ":")).encode()
    if len(content) > MOST_BYTES_OF_ONE:
        return
    with suppress(OSError):
        write_atomically(folder / f"{key}.json", content)
        _make_room(folder)


def _make_room(folder: Path) -> None:
    answers = []
    for path in folder.iterdir():
        with suppress(FileNotFoundError):  # another audit may remove it too
            status = path.stat()
            answers.append((status.st_mtime_ns, status.st_size, path))
    total = 0
    for count, (_, size, path) in enumerate(sorted(answers, key=itemgetter(0), reverse=True), 1):
        total += size
        if count > MOST_FILES or total > MOST_BYTES:
            path.unlink(missing_ok=True)
