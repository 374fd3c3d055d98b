"""The first hour of a new user, as a script: each command of the README, and the slips people make.

`make first-hour` clones the repository, runs `make audit`, then each install line whose program is
there, in a home of its own, and takes the walk on the PATH that each of them made. The walk needs
no network: its Hub is on loopback. tests/tools/test_first_hour.py takes it without installing.
"""

import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

from rewrite_documents import ROOT, SHOWN
from support.builders import safetensors_bytes
from support.checkpoints import config_bytes, expect, stored_by
from support.hub import Hub, Stall
from support.running import heeding
from support.sweep_models import healthy

README = (ROOT / "README.md").read_text(encoding="utf-8")
CONSOLE = tuple((block[2], block[3]) for block in SHOWN.finditer(README))
INSTALL = tuple(re.findall(r"```bash install\n(.*?)```", README, re.DOTALL)[0].splitlines())

_CLEAN, _FINDINGS, _USAGE, _UNAUDITED, _INTERRUPTED = 0, 1, 2, 3, 130
_OF_INSTALLERS = re.compile(r"PIP_|UV_|SSL_CERT_|HTTPS?_PROXY\Z", re.IGNORECASE)
_PATIENCE = 120  # seconds for one command


class Step(NamedTuple):
    """A command as it is typed, its exit code, and what its line says."""

    typed: str
    code: int
    says: str  # of a refusal in its one line on standard error; else anywhere


# The commands that the README has in its sentences, with something in the place of their MODEL.
IN_SENTENCES = (
    Step("audit small --as BertForMaskedLM", _CLEAN, "Not stored: loading starts them"),
    Step("audit small -o report.html && grep -c '<h2>Tensors' report.html", _CLEAN, "OK  All"),
    Step("audit small -o report.svg -q && head -c 4 report.svg", _CLEAN, "<svg"),
    Step("audit compiled", _FINDINGS, "wrapper-prefix)"),
    Step("audit fix compiled", _FINDINGS, "to write it: audit fix compiled --apply"),
    Step("audit fix compiled --apply", _CLEAN, "strip '_orig_mod.'"),
    Step("audit compiled.fixed", _CLEAN, "OK  All"),
    Step("audit explain small --format json", _CLEAN, '"formula"'),
    Step("audit explain-finding wrapper-prefix", _CLEAN, "wrapper in which the model was saved"),
    Step("audit memory small --format json", _CLEAN, '"training_estimate"'),
    Step("audit diff small compiled", _FINDINGS, "(whole model)"),
    Step("audit attest small -o s.json && head -c 60 s.json", _CLEAN, "in-toto.io/Statement/v1"),
    Step("audit push small o/pushed --as BertModel", _UNAUDITED, "auth login"),
    Step("audit comment o/sound --pr 1 --dry-run", _UNAUDITED, "no such repository"),
    Step("audit report", _USAGE, "'sweep.sqlite' does not exist; `audit sweep` creates one"),
    Step("audit sweep --author o --night n1 --quiet", _FINDINGS, ""),
    Step("audit report --night n1", _FINDINGS, "new: o/broken: wrapper-prefix"),
    Step("ls reports/nightly/n1/models", _CLEAN, "o-broken-"),
)
SLIPS = (
    Step("audit list", _USAGE, "'list' is not a command; try audit architectures"),
    Step("audit help", _CLEAN, "Usage: audit MODEL..."),
    Step("audit version", _CLEAN, "hf-audit "),
    Step("audit '\"o/sound\"'", _CLEAN, "OK  All"),
    Step("audit o/sound/", _CLEAN, "OK  All"),
    Step("audit chek small", _USAGE, "'chek' is not a command (did you mean check?)"),
    Step("audit small --sorce hub", _USAGE, "no such option: --sorce (did you mean --source?)"),
    Step("audit $HF_ENDPOINT/o/sound/tree/main", _CLEAN, "OK  All"),
    Step("audit ./smal", _USAGE, "no such file or folder here: './smal'"),
    Step("audit empty", _UNAUDITED, "empty-repo: the folder 'empty' is empty"),
    Step("audit bare -q", _UNAUDITED, "no-config"),
    Step("audit small/config.json -q", _UNAUDITED, "is a config alone"),
    Step("audit o/none", _UNAUDITED, "not-found"),
    Step("audit closed/gated", _UNAUDITED, "gated"),
    Step("HF_ENDPOINT=http://127.0.0.1:1 audit o/sound", _UNAUDITED, "unreachable"),
)
# Whose tests are elsewhere: the walk after an installation takes these steps, too.
HELD = (
    Step("audit --help", _CLEAN, "Usage: audit"),
    Step("audit --version", _CLEAN, "hf-audit "),
    Step("audit small -v | head -n 1", _CLEAN, "small"),
    Step("audit small --format jsn", _USAGE, "(did you mean json?)"),
    Step("audit small --as BertModle", _USAGE, "(did you mean BertModel?)"),
    Step("audit memory", _USAGE, "missing argument 'MODEL'"),
    Step("audit https://example.org/o/sound", _USAGE, "'example.org' is another site"),
    Step("HF_HUB_OFFLINE=1 audit o/sound", _UNAUDITED, "HF_HUB_OFFLINE"),
    Step("audit small > /dev/full", _UNAUDITED, "No space left on device"),
)
CTRL_C = Step("exec audit o/slow", _INTERRUPTED, "interrupted")


def walk(place: Path, path: str, *, whole: bool = True) -> Iterator[tuple[Step, str]]:
    """Each step, and what was wrong with it, if anything.

    The whole walk has the README's blocks, and what tests elsewhere hold.
    """
    _furnish(place)
    with Hub() as hub:
        hub.add("o/sound", healthy(1))
        hub.add("o/broken", _compiled(healthy(2)))
        hub.add("closed/gated", healthy(3), gated="manual")
        env = _environment(place, path, HF_ENDPOINT=hub.url)
        for typed, printed in CONSOLE if whole else ():
            step = Step(typed, int(" claim " in typed), printed)  # of its two claims one is refuted
            yield step, _fault(step, _run(step, place, env))
        for step in (*IN_SENTENCES, *SLIPS, *(HELD if whole else ())):
            yield step, _fault(step, _run(step, place, env))
        hub.add("o/slow", healthy(4))
        yield CTRL_C, _fault(CTRL_C, _interrupted(hub, place, env))


def _furnish(place: Path) -> None:
    """Folders: a sound model, one that was compiled when saved, an empty one, weights alone."""
    folders = {"small": healthy(0), "compiled": _compiled(healthy(0)), "empty": {}}
    folders["bare"] = {"model.safetensors": healthy(0)["model.safetensors"]}
    for name, files in folders.items():
        (place / name).mkdir(parents=True)
        for file, content in files.items():
            (place / name / file).write_bytes(content)


def _compiled(files: Mapping[str, bytes]) -> dict[str, bytes]:
    """The same model, saved from what torch.compile returns."""
    changes = {"vocab_size": 13, "intermediate_size": 10}
    tensors = stored_by(expect("BertModel", **changes))
    described = {f"_orig_mod.{one.name}": (one.dtype, one.shape) for one in tensors}
    config = config_bytes(architectures=["BertModel"], dtype="float32", **changes)
    return {**files, "config.json": config, "model.safetensors": safetensors_bytes(described)}


def _environment(home: Path, path: str, **more: str) -> dict[str, str]:
    """Nothing but a home of its own, a PATH, and what an installer needs to reach its packages."""
    kept = {name: value for name, value in os.environ.items() if _OF_INSTALLERS.match(name)}
    own = {"HOME": str(home), "PATH": path, "LANG": "C.UTF-8", "COLUMNS": "80"}
    return {**kept, "NO_PROXY": "127.0.0.1", **own, **more}


def _run(step: Step, place: Path, env: Mapping[str, str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(  # noqa: S603 - the README's commands, and our own
        ["/bin/sh", "-c", step.typed],
        cwd=place,
        env=env,
        capture_output=True,
        text=True,
        timeout=_PATIENCE,
        check=False,
    )


def _interrupted(hub: Hub, place: Path, env: Mapping[str, str]) -> subprocess.CompletedProcess[str]:
    """Ctrl-C while the Hub does not answer."""
    hub.misbehave(fault=Stall(), path="*config.json")
    command = ["/bin/sh", "-c", CTRL_C.typed]
    options = {"preexec_fn": heeding, "text": True}
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with subprocess.Popen(command, cwd=place, env=env, **options, **pipes) as process:  # noqa: S603 - our own command
        while not any(record.fault for record in hub.log) and process.poll() is None:
            time.sleep(0.01)
        process.send_signal(signal.SIGINT)
        out, said = process.communicate(timeout=_PATIENCE)
    return subprocess.CompletedProcess(command, process.returncode, out, said)


def _fault(step: Step, ran: subprocess.CompletedProcess[str]) -> str:
    """What is wrong with a run; nothing where it ended as it should."""
    said = f"{ran.stdout}{ran.stderr}"
    if ran.returncode != step.code:
        return f"ended with {ran.returncode} and not with {step.code}: {said[-500:]}"
    if "Traceback" in said:
        return said[-500:]
    refused = step.code in {_USAGE, _UNAUDITED, _INTERRUPTED}
    if refused and (len(ran.stderr.splitlines()) != 1 or ran.stdout.count("\n") > 1):
        return f"did not say it in one line: {said[-500:]}"
    return (
        "" if step.says in (ran.stderr if refused else said) else f"did not say it: {said[-500:]}"
    )


# --- from a clone ---------------------------------------------------------------------------------


def main() -> int:
    """Install in each way, and walk; the number of steps that failed."""
    failed = 0
    with tempfile.TemporaryDirectory(prefix="first-hour-") as name:
        place = Path(name)
        clone = place / "clone"
        subprocess.run(["git", "clone", "--quiet", str(ROOT), str(clone)], check=True)  # noqa: S603, S607
        usual = os.environ["PATH"]
        made = Step("make audit", _CLEAN, "OK  All 202 tensors")
        failed += _told(made, _fault(made, _run(made, clone, _environment(place, usual))))
        for line in INSTALL:
            home = place / f"home-{line.split()[0]}"
            home.mkdir()
            program = line.split()[0]
            if shutil.which(program) is None:
                sys.stdout.write(f"----  {line}: {program} is not here\n")
                continue
            path = f"{home}/.hf-audit/bin:{home}/.local/bin:{usual}"
            step = Step(line, _CLEAN, "")
            if _told(step, _fault(step, _run(step, clone, _environment(home, path)))):
                failed += 1
                continue
            failed += sum(_told(each, fault) for each, fault in walk(home / "walk", path))
    return min(failed, 1)


def _told(step: Step, fault: str) -> bool:
    sys.stdout.write(f"{'FAIL' if fault else 'ok'}    [{step.code}] {step.typed}\n")
    if fault:
        sys.stdout.write(f"      {fault}\n")
    sys.stdout.flush()
    return bool(fault)


if __name__ == "__main__":
    sys.exit(main())
