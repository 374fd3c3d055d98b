"""The judge of llama.cpp's own loader: whether it loads a GGUF file, and whether it then computes.

It calls the C functions of llama.cpp in the `xllamacpp` wheel, in an environment of its own, and
imports nothing of this project. A file's line may begin with `run `. `--registered` prints the
architectures, and the keys and tensors whose names the library contains, instead.
"""

import ctypes
import importlib.util
import json
import os
import re
import signal
import sys
from importlib.metadata import version
from pathlib import Path
from typing import Any

import gguf

_WORDS = 128  # of 8 bytes: more than llama.cpp's structs of parameters have
_SECONDS = 5  # a small file takes a millisecond
_WARNING = 3  # the least level of a log line that is kept
_LETTERS = rb"[A-Za-z0-9][A-Za-z0-9_.-]{1,40}"


class Parameters(ctypes.Structure):
    """Parameters as llama.cpp returns them; a callee reads the words that it knows."""

    _fields_ = (("words", ctypes.c_uint64 * _WORDS),)


class Batch(ctypes.Structure):
    """The struct llama_batch."""

    _fields_ = (
        ("n_tokens", ctypes.c_int32),
        *((name, ctypes.c_void_p) for name in ("token", "embd", "pos", "n_seq", "seq", "logits")),
    )


def _library_path() -> Path:
    spec = importlib.util.find_spec("xllamacpp")
    assert spec
    assert spec.origin
    return next(Path(spec.origin).parent.glob("*.so"))


class Loader:
    """llama.cpp's functions, and the lines that it logged last."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self._lib = lib = ctypes.CDLL(str(_library_path()))
        log_type = ctypes.CFUNCTYPE(None, ctypes.c_int, ctypes.c_char_p, ctypes.c_void_p)
        self._log = log_type(self._keep)
        lib.llama_log_set(self._log, None)
        lib.llama_backend_init()
        for function in (lib.llama_model_default_params, lib.llama_context_default_params):
            function.restype = Parameters
        for function in (lib.llama_model_load_from_file, lib.llama_init_from_model):
            function.restype = ctypes.c_void_p
        lib.llama_batch_get_one.restype = Batch

    def _keep(self, level: int, text: bytes, _data: object) -> None:
        if level >= _WARNING:
            self.lines.append(text.decode(errors="replace").strip())

    def outcome(self, path: str, *, run: bool) -> dict[str, Any]:
        """Return whether a file loads and, if asked, computes the logits of one token."""
        self.lines.clear()
        lib = self._lib
        parameters = lib.llama_model_default_params()
        model = lib.llama_model_load_from_file(ctypes.c_char_p(os.fsencode(path)), parameters)
        if not model:
            errors = [line for line in self.lines if "failed to load model" not in line]
            return {"loads": False, "error": errors[-1] if errors else "no message"}
        if not run:
            lib.llama_model_free(ctypes.c_void_p(model))
            return {"loads": True}
        given = lib.llama_context_default_params()
        given.words[0] = 32 | 32 << 32  # n_ctx, n_batch
        given.words[1] = 32 | 1 << 32  # n_ubatch, n_seq_max
        context = lib.llama_init_from_model(ctypes.c_void_p(model), given)
        if not context:
            return {"loads": False, "error": " ".join(self.lines[-2:]) or "no context"}
        token = ctypes.c_int32(1)
        batch = lib.llama_batch_get_one(ctypes.byref(token), 1)
        encodes = lib.llama_model_has_encoder(ctypes.c_void_p(model)) & 1
        compute = lib.llama_encode if encodes else lib.llama_decode
        status = compute(ctypes.c_void_p(context), batch)
        return {"loads": status == 0, "error": "" if status == 0 else " ".join(self.lines[-2:])}


def serve(requests: int, answers: int) -> None:
    """Answer requests until one of them ends the process."""
    loader = Loader()
    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, 1)
    with os.fdopen(requests) as lines, os.fdopen(answers, "w") as out:
        for line in lines:
            verb, _, path = line.rstrip("\n").rpartition(" ")
            signal.alarm(_SECONDS)
            outcome = loader.outcome(path, run=verb == "run")
            signal.alarm(0)
            print(json.dumps(outcome), file=out, flush=True)


class Child:
    """A process that loads files; llama.cpp ends it where an assertion fails."""

    def __init__(self) -> None:
        ask, self._asked = os.pipe()
        self._told, answer = os.pipe()
        self._errors = os.memfd_create("errors")
        self._pid = os.fork()
        if self._pid == 0:
            os.dup2(self._errors, 2)
            os.close(self._asked)
            serve(ask, answer)
            os._exit(0)
        for one in (ask, answer):
            os.close(one)
        self._lines = os.fdopen(self._told)

    def outcome(self, line: str) -> dict[str, Any] | None:
        """Return the answer to a request; None if the process ended over it."""
        os.write(self._asked, f"{line}\n".encode())
        answer = self._lines.readline()
        if answer:
            return json.loads(answer)
        os.waitpid(self._pid, 0)
        return None

    def last_words(self) -> str:
        """Return what an ended process wrote about its end, and close its pipes."""
        size = os.fstat(self._errors).st_size
        text = os.pread(self._errors, 1 << 16, max(size - (1 << 16), 0)).decode(errors="replace")
        os.close(self._asked)
        os.close(self._errors)
        self._lines.close()
        found = re.findall(r"[\w.-]+:\d+: (.+)", text)
        return found[-1] if found else "it crashes"


def registered() -> dict[str, Any]:
    """Return the architectures, and the names of keys and tensors in the library."""
    content = _library_path().read_bytes()
    lib = ctypes.CDLL(str(_library_path()))
    name_of = lib._Z13llm_arch_name8llm_arch
    name_of.restype = ctypes.c_char_p
    names = [name_of(number).decode() for number in range(400)]
    keys = {found.decode() for found in re.findall(rb"%s\.([a-z0-9_.]+)\x00", content)}
    tensors = {
        found.decode()
        for found in re.findall(
            rb"\x00((?:(?:enc\.|dec\.)?blk\.%d\.)?[a-z0-9_.]{2,60})(?=\x00)", content
        )
        if found.startswith((b"blk.%d.", b"enc.", b"dec."))
    }
    tensors |= {name.replace("{bid}", "%d") for name in gguf.TENSOR_NAMES.values()}
    return {
        "engine": "llama.cpp",
        "version": f"b{version('xllamacpp').rpartition('.')[2]}",
        "with": {"xllamacpp": version("xllamacpp"), "gguf": version("gguf")},
        "architectures": sorted({*names} - {"(unknown)", "unknown"}),
        "keys": sorted(keys),
        "tensors": sorted(tensors),
        "words": sorted({one.decode() for one in re.findall(_LETTERS + rb"(?=\x00)", content)}),
    }


def main() -> None:
    """Judge the files that standard input lists."""
    if sys.argv[1:] == ["--registered"]:
        print(json.dumps(registered()))
        return
    os.environ["GGML_NO_BACKTRACE"] = "1"
    child = Child()
    for line in sys.stdin:
        outcome = child.outcome(line.rstrip("\n"))
        if outcome is None:
            outcome = {"loads": False, "error": f"aborts: {child.last_words()}"}
            child = Child()
        print(json.dumps({**outcome, "judged": True}), flush=True)


if __name__ == "__main__":
    main()
