"""Bills of materials are valid CycloneDX, and contain nothing that was not read."""

import json
import subprocess
import sys
from hashlib import sha256

import pytest
from support.builders import safetensors_bytes
from support.checkpoints import config_bytes, expect, stored_by
from support.outcomes.examples import EXAMPLES

from auditor import audit
from auditor.formats import View
from auditor.formats.as_cyclonedx import files

CARD = {"license": "mit", "datasets": ["acme/a", "acme/b"], "base_model": "acme/base"}


def document(*outcomes):
    """The document as it is read, which the official schema accepts."""
    [text] = files(outcomes, View()).values()
    validation = pytest.importorskip("cyclonedx.validation.json", reason="has the official schema")
    schema = pytest.importorskip("cyclonedx.schema")
    fault = validation.JsonStrictValidator(schema.SchemaVersion.V1_6).validate_str(text)
    assert fault is None, fault
    return json.loads(text)


def properties(component):
    return {one["name"]: one["value"] for one in component["modelCard"]["properties"]}


def test_the_official_schema_accepts_several_models_and_counts_are_the_reports():
    outcomes = [make() for make in EXAMPLES.values()]
    components = document(*outcomes)["components"]
    for outcome, component in zip(outcomes, components, strict=True):
        counted = properties(component).get("hf-audit:parameters")
        assert counted is None or int(counted) == outcome.observed.parameters


def small_model():
    tensors = {one.name: ("BF16", one.shape) for one in stored_by(expect("BertModel"))}
    config = config_bytes(architectures=["BertModel"], dtype="bfloat16")
    return {"config.json": config, "model.safetensors": safetensors_bytes(tensors)}


def test_a_model_of_the_hub_has_hashes_licence_datasets_and_base(at_hub):
    at_hub.add("acme/model", small_model(), card=CARD)
    outcome = audit("acme/model")
    [component] = document(outcome)["components"]
    listed = {file.name: file.sha256 for file in outcome.files if file.sha256}
    assert listed
    assert listed == {
        one["name"]: one["hashes"][0]["content"]
        for one in component["components"]
        if "hashes" in one
    }
    assert component["version"] == outcome.commit
    assert [one["license"]["name"] for one in component["licenses"]] == ["mit"]
    assert [one["name"] for one in component["pedigree"]["ancestors"]] == ["acme/base"]
    parameters = component["modelCard"]["modelParameters"]
    assert [one["name"] for one in parameters["datasets"]] == CARD["datasets"]
    assert (parameters["architectureFamily"], parameters["modelArchitecture"]) == (
        "bert",
        "BertModel",
    )
    total = str(expect("BertModel").parameters)
    assert properties(component)["hf-audit:parameters"] == total
    assert properties(component)["hf-audit:parameters:BF16"] == total


def test_a_card_of_other_types_is_left_out(subtests, at_hub):
    for card in [{"license": 3, "datasets": {}, "base_model": [[]]}, {}]:
        with subtests.test(card=card):
            at_hub.clear()
            at_hub.add("acme/model", small_model(), card=card)
            [component] = document(audit("acme/model"))["components"]
            assert {"licenses", "pedigree"}.isdisjoint(component)
            assert "datasets" not in component["modelCard"]["modelParameters"]


def folder_with(path, readme=None):
    for name, content in small_model().items():
        (path / name).write_bytes(content)
    if readme is not None:
        (path / "README.md").write_bytes(readme)
    return str(path)


def test_a_folder_has_no_hashes_if_its_files_were_not_read(tmp_path):
    folder = folder_with(tmp_path, README)
    [component] = document(audit(folder))["components"]
    assert all("hashes" not in one for one in component["components"])
    assert {one["name"] for one in component["components"]} == {*small_model(), "README.md"}
    assert "licenses" not in component


README = f"---\n{json.dumps(CARD)}\n---\n# Title\n".encode()


def test_a_bill_of_a_folder_has_hashes_and_what_its_card_says(tmp_path):
    folder = folder_with(tmp_path, README)
    program = "from auditor.cli import main; main()"
    command = [sys.executable, "-c", program, folder, "--format", "cyclonedx"]
    run = subprocess.run(command, capture_output=True, check=True)  # noqa: S603 - our own command
    text = run.stdout.decode()
    assert text == files([audit(folder, materials=True)], View())["bom.cdx.json"]
    [component] = document(audit(folder, materials=True))["components"]
    read = {one["name"]: one["hashes"][0]["content"] for one in component["components"]}
    assert read == {path.name: sha256(path.read_bytes()).hexdigest() for path in tmp_path.iterdir()}
    assert [one["license"]["name"] for one in component["licenses"]] == ["mit"]
    assert [one["name"] for one in component["pedigree"]["ancestors"]] == ["acme/base"]
    datasets = component["modelCard"]["modelParameters"]["datasets"]
    assert [one["name"] for one in datasets] == CARD["datasets"]


FRONT_MATTER = {
    b"license: mit\r\ndatasets: 3": ["mit"],
    b"license: [mit, apache-2.0]": ["mit", "apache-2.0"],
    b"license: 3": [],
    b"[license, mit]": [],
    b"license: mit\nx: &a [1]\ny: [*a, *a]": [],
    b"license: !!python/object/apply:os.getcwd []": [],
    b"license: mit\nx: " + b"[" * 60_000: [],
    b"license: mit\nx: " + b"- " * 30_000: [],
    b"license: mit\nx: " + b"9" * 60_000: [],
    b"license: mit\nx: " + b"a" * 64 * 1024: [],
    b"license: mit\nx: 2026-99-99": [],
    b"license: m\xffit": [],
    b"license: [": [],
}


def test_the_front_matter_of_a_folder_is_read_as_data(tmp_path):
    for front_matter, licenses in FRONT_MATTER.items():
        folder = folder_with(tmp_path, b"---\n" + front_matter + b"\n---\n# Title\n")
        [component] = document(audit(folder, materials=True))["components"]
        found = [one["license"]["name"] for one in component.get("licenses", ())]
        assert found == licenses, front_matter[:60]


def test_a_readme_without_front_matter_has_no_licence(tmp_path):
    for readme in (b"", b"# Title\n---\nlicense: mit\n---\n", b"---\nlicense: mit"):
        folder = folder_with(tmp_path, readme)
        [component] = document(audit(folder, materials=True))["components"]
        assert "licenses" not in component
