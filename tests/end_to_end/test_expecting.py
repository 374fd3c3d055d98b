"""Where expectations come from, through the real command: the closed form, else transformers."""

import json
import re
import subprocess
import sys
import tempfile
from importlib.metadata import version
from itertools import cycle
from pathlib import Path

import jsonschema
import pytest
from msgspec.structs import replace
from support.running import run

import auditor
from auditor.analytic import Config, Expectation, Written, catalogue
from auditor.errors import CheckpointError
from auditor.findings import FormulaDisputed
from auditor.formats import as_json
from auditor.oracle import client

# A type with neither a closed form nor a generated form.
SWITCH = {
    "d_model": 8,
    "d_kv": 4,
    "d_ff": 16,
    "num_layers": 2,
    "num_sparse_encoder_layers": 1,
    "num_sparse_decoder_layers": 1,
    "num_heads": 2,
    "num_experts": 2,
    "vocab_size": 32,
}
ROFORMER = {
    "hidden_size": 8,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 16,
    "vocab_size": 32,
    "max_position_embeddings": 16,
}
SCHEMA = Path(as_json.__file__).parent / "report.schema.json"
LIBRARY = f"transformers {version('transformers')}"


# --- without a closed form, by the oracle -----------------------------------------------------


@pytest.fixture(scope="module")
def switch(tmp_path_factory) -> Path:
    import transformers  # noqa: PLC0415 - seconds, for these tests alone

    folder = tmp_path_factory.mktemp("switch")
    config = transformers.SwitchTransformersConfig(**SWITCH)
    transformers.SwitchTransformersForConditionalGeneration(config).save_pretrained(folder)
    return folder


@pytest.fixture(scope="module")
def home(tmp_path_factory) -> str:
    """A home in which the oracle answers each config once for all of these tests."""
    return str(tmp_path_factory.mktemp("home"))


@pytest.fixture
def env(hub_env: dict[str, str], home: str) -> dict[str, str]:
    return hub_env | {"HF_HOME": home}


def audited(folder: Path, *args: str, env: dict[str, str], code: int = 0) -> dict:
    done = run(str(folder), *args, "--format", "json", env=env)
    assert done.returncode == code, done.stderr
    report = json.loads(done.stdout)
    jsonschema.validate(report, json.loads(SCHEMA.read_text()))
    return report


def python(code: str, *args: str, env: dict[str, str]) -> subprocess.CompletedProcess[str]:
    """The command in a Python that something was done to."""
    whole = f"import sys\n{code}\nsys.argv = ['audit', *sys.argv[1:]]\nmain()\n"
    return subprocess.run(  # noqa: S603 - our own code
        [sys.executable, "-c", whole, *args],
        env=env,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


@pytest.mark.oracle
def test_a_checkpoint_without_a_closed_form_is_audited_by_the_oracle(switch: Path, env) -> None:
    report = audited(switch, env=env)
    assert (report["expected"]["by"], report["expected"]["library"]) == ("oracle", LIBRARY)
    assert (report["target"], report["model_type"]) == (
        "SwitchTransformersForConditionalGeneration",
        "switch_transformers",
    )
    assert (report["verdict"], report["residual"]) == ("clean", 0)
    assert report["observed"]["parameters"] == report["expected"]["parameters"] > 0
    assert {finding["kind"] for finding in report["findings"]} == {"tied"}
    printed = " ".join(run(str(switch), env=env).stdout.split())
    assert f"Expected by the oracle, {LIBRARY}." in printed


@pytest.mark.oracle
def test_the_second_audit_starts_no_process_and_imports_neither_library(switch: Path, env) -> None:
    first = audited(switch, env=env)
    code = (
        "import atexit, subprocess\n"
        "from auditor.oracle import client\n"  # before there is no Popen for it to name
        "from auditor.cli import main\n"
        "subprocess.Popen = None\n"
        "heavy = ('torch', 'transformers')\n"
        "atexit.register(lambda: print([m for m in heavy if m in sys.modules], file=sys.stderr))"
    )
    done = python(code, str(switch), "--format", "json", env=env)
    assert (done.returncode, done.stderr) == (0, "[]\n")
    assert json.loads(done.stdout) == first


def test_without_the_extra_it_names_what_lets_transformers_build_it(subtests, tmp_path, env):
    for missing in ["torch", "transformers"]:
        with subtests.test(missing=missing):
            place = Path(tempfile.mkdtemp(dir=tmp_path))
            path = place / "config.json"
            path.write_text(json.dumps({"model_type": "switch_transformers", **SWITCH}))
            without = f"sys.modules[{missing!r}] = None\nfrom auditor.cli import main"
            done = python(without, str(path), env=env)
            assert done.returncode == 3
            assert done.stderr.endswith(
                "unknown-architecture: no closed form is known for "
                "model_type 'switch_transformers'; with torch and transformers installed, "
                "transformers builds it if it has the class\n"
            )
            for asked in (("--oracle",), ("--as", "SwitchTransformersModel")):
                done = python(without, str(path), *asked, env=env)
                assert done.returncode == 2
                assert re.search("torch (and )?transformers", done.stderr)
                assert "hf-audit[" not in done.stderr


UNBUILT = [
    ({"architectures": ["NoSuch"], "model_type": "nosuch"}, 3, f"{LIBRARY} is known for arch"),
    (
        {"architectures": ["NoSuch"]},
        3,
        "architecture 'NoSuch', .*; --as takes SwitchTransformersModel, Switch",
    ),
    ({"d_model": "8"}, 1, "transformers cannot build SwitchTransformersModel .*d_model"),
    ({"num_layers": 10**9}, 1, "num_layers is 1000000000; the oracle builds"),
    (
        {"model_type": "roformer"},
        1,
        "SwitchTransformersModel, which is switch_transformers, but model_type says 'roformer'",
    ),
]


def unbuilt(folder: Path, changes) -> Path:
    values = {
        "architectures": ["SwitchTransformersModel"],
        "model_type": "switch_transformers",
        **SWITCH,
        **changes,
    }
    (folder / "config.json").write_text(json.dumps(values))
    return folder / "config.json"


@pytest.mark.oracle
def test_a_class_that_the_oracle_cannot_build_is_reported_in_one_line(subtests, tmp_path):
    for changes, code, said in UNBUILT:
        with subtests.test(changes=changes, code=code, said=said):
            place = Path(tempfile.mkdtemp(dir=tmp_path))
            outcome = auditor.audit(str(unbuilt(place, changes)))
            if code == 3:
                assert isinstance(outcome, auditor.Unaudited)
                detail = outcome.detail
            else:
                assert isinstance(outcome, auditor.Report)
                [detail] = [finding.reason for finding in outcome.findings]
            assert "\n" not in detail
            jsonschema.validate(detail, {"pattern": said})


@pytest.mark.oracle
def test_the_code_of_a_checkpoint_never_runs(switch: Path, tmp_path: Path, hub_env) -> None:
    marker, folder = tmp_path / "ran", tmp_path / "folder"
    folder.mkdir()
    values = json.loads((switch / "config.json").read_text())
    values |= {"auto_map": {"AutoModelForMaskedLM": "modeling_switch.SwitchForMaskedLM"}}
    (folder / "config.json").write_text(json.dumps(values))
    (folder / "model.safetensors").write_bytes((switch / "model.safetensors").read_bytes())
    for name in ("torch", "transformers", "modeling_switch", "sitecustomize", "auditor"):
        (folder / f"{name}.py").write_text(f"open({str(marker)!r}, 'w')\n")
    done = subprocess.run(  # noqa: S603 - our own command
        [Path(sys.executable).parent / "audit", "."],
        cwd=folder,
        env=hub_env,
        capture_output=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0
    assert not marker.exists()


# --- for another class ------------------------------------------------------------------------

WRITTEN = ("RoFormerModel", "RoFormerForMaskedLM", "RoFormerForTokenClassification")
SIBLINGS = (*WRITTEN, "RoFormerForCausalLM", "RoFormerForSequenceClassification")


@pytest.fixture(scope="module")
def roformers(tmp_path_factory) -> dict[str, Path]:
    import transformers  # noqa: PLC0415 - as above

    folders = {}
    for name in WRITTEN:
        folders[name] = tmp_path_factory.mktemp(name)
        config = transformers.RoFormerConfig(**ROFORMER)
        getattr(transformers, name)(config).save_pretrained(folders[name])
    return folders


@pytest.mark.oracle
def test_as_another_class_it_names_what_from_pretrained_names(subtests, roformers):
    for written, target in list(zip(cycle(WRITTEN), SIBLINGS, strict=False)):
        with subtests.test(written=written, target=target):
            import transformers  # noqa: PLC0415 - as above

            _, info = getattr(transformers, target).from_pretrained(
                roformers[written], output_loading_info=True
            )
            report = auditor.audit(str(roformers[written]), target=target)
            assert isinstance(report, auditor.Report)
            assert (report.verdict, report.residual) == ("clean", 0)
            assert report.load_report is not None
            assert set(report.load_report.missing) == info["missing_keys"]
            assert set(report.load_report.unexpected) == info["unexpected_keys"]
            kinds = {finding.kind for finding in report.findings}
            assert kinds.isdisjoint({"missing", "unexpected"})  # a sibling wrote it


@pytest.mark.oracle
def test_a_class_of_no_family_or_of_another_one_is_refused(subtests, switch, env):
    for target, code, said in [
        ("SwitchTransformersForMagic", 2, "transformers .* has no such model class"),
        (
            "SwitchTransformersPreTrainedModel",
            2,
            "no closed form is known for 'SwitchTransformersPreTrainedModel'",
        ),
        (
            "RoFormerModel",
            3,
            "other-family: RoFormerModel is of the family roformer, the .* switch_transformers",
        ),
    ]:
        with subtests.test(target=target, code=code, said=said):
            done = run(str(switch), "--as", target, "-q", env=env)
            assert done.returncode == code
            jsonschema.validate(done.stderr, {"pattern": said})


# --- a second opinion -------------------------------------------------------------------------


@pytest.mark.oracle
def test_a_second_opinion_of_a_closed_form_changes_nothing_where_they_agree() -> None:
    alone, both = (
        auditor.audit("bert-base-chinese", source="bundled", oracle=more) for more in (False, True)
    )
    assert both == alone


class _Dissenter:
    """An oracle that knows every class of the catalogue, and has its own view of one tensor."""

    name = "transformers 5"

    def __init__(self, library: str) -> None:
        assert library == "transformers"

    def expect(self, config: Config, target: str) -> Expectation:
        found = catalogue.expect(config, target)
        changed = (
            tensor._replace(shape=tensor.shape[::-1]) if "word" in tensor.name else tensor
            for tensor in found.tensors
        )
        listed = Written(tensors=tuple(changed), modules=found.modules)
        return replace(found, by="oracle", library=self.name, listed=listed)


class _Helpless(_Dissenter):
    def expect(self, config: Config, target: str) -> Expectation:  # noqa: ARG002 - as above
        raise CheckpointError("transformers cannot build it")


def test_where_they_differ_it_is_a_finding_and_the_closed_form_stands(monkeypatch) -> None:
    alone = auditor.audit("bert-base-chinese", source="bundled")
    monkeypatch.setattr(client, "available_oracle", _Dissenter)
    report = auditor.audit("bert-base-chinese", source="bundled", oracle=True)
    assert isinstance(report, auditor.Report)
    assert (report.verdict, report.residual, report.expected) == ("findings", 0, alone.expected)
    [found] = [finding for finding in report.findings if FormulaDisputed.describes(finding)]
    assert found.names == ("bert.embeddings.word_embeddings.weight",)
    assert found.reason == "(21128, 768) by the closed form, (768, 21128) by transformers 5"


def test_a_second_opinion_that_is_not_available_is_reported(monkeypatch) -> None:
    monkeypatch.setattr(client, "available_oracle", _Helpless)
    report = auditor.audit("bert-base-chinese", source="bundled", oracle=True)
    assert report.verdict == "clean"
    assert "a second opinion: transformers cannot build it" in report.unchecked
