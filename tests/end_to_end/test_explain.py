"""explain and architectures, through the real command."""

import json
import re
import tempfile
from pathlib import Path

from support.pipelines import stable_diffusion, written
from support.running import run

import auditor
from auditor.analytic import catalogue

MIXTRAL = {
    "architectures": ["MixtralForCausalLM"],
    "model_type": "mixtral",
    "vocab_size": 32000,
    "hidden_size": 4096,
    "intermediate_size": 14336,
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "num_local_experts": 8,
    "num_experts_per_tok": 2,
}


def _config(folder: Path, values: dict[str, object]) -> str:
    path = folder / "config.json"
    path.write_text(json.dumps(values))
    return str(path)


def test_the_formula_of_the_published_write_up_is_what_explain_prints() -> None:
    done = run("explain", "bert-base-chinese", "--source", "bundled")
    assert done.returncode == 0
    assert re.search(r"encoder +85,054,464 +83.2% N\*\(12\*D\^2 \+ 13\*D\)", done.stdout)
    assert "102,290,312 parameters" in done.stdout


def test_a_mixture_of_experts_has_fewer_parameters_active_than_there_are(tmp_path: Path) -> None:
    done = run("explain", _config(tmp_path, MIXTRAL))
    assert "46,702,792,704 parameters" in done.stdout
    assert "12,879,925,248 (27.6%) active for one token" in done.stdout


def test_latex_balances_its_braces_and_escapes_names(tmp_path: Path) -> None:
    done = run("explain", _config(tmp_path, MIXTRAL), "--latex", "--depth", "4")
    assert done.stdout.count("{") - done.stdout.count(r"\{") == (
        done.stdout.count("}") - done.stdout.count(r"\}")
    )
    assert r"block\_sparse\_moe" in done.stdout
    assert r"D^{2}" in done.stdout


def test_a_fault_that_keeps_the_class_from_being_built_is_shown_with_the_formula(
    tmp_path: Path,
) -> None:
    values = {
        "model_type": "bert",
        "architectures": ["BertModel"],
        "pad_token_id": 30522,
        "hidden_act": "gleu",
    }
    done = run("explain", _config(tmp_path, values))
    assert (done.returncode, "V*D" in done.stdout) == (0, True)
    said = [line for line in done.stderr.splitlines() if line.startswith("audit: bad-config: ")]
    assert [line.split()[2] for line in said] == ["hidden_act", "pad_token_id"]
    assert not run("explain", _config(tmp_path, values), "-q").stderr


def test_of_a_pipeline_the_folders_that_can_be_explained_are_named(tmp_path: Path) -> None:
    done = run("explain", written(tmp_path, stable_diffusion()))
    said = "'text_encoder', 'unet', 'vae'"
    assert (done.returncode, done.stdout, said in done.stderr) == (3, "", True)
    assert run("explain", str(tmp_path / "text_encoder")).returncode == 0


def test_a_type_with_a_generated_form_is_explained(subtests):
    for (
        model_type,
        parameters,
    ) in [  # of AutoModel.from_config(AutoConfig.for_model(model_type)) in transformers 5.24
        ("canine", 132_082_944),
        ("vilt", 111_595_008),
    ]:
        with subtests.test(model_type=model_type, parameters=parameters):
            done = run("explain", model_type, "--depth", "0")
            assert (done.returncode, done.stderr) == (0, "")
            assert done.stdout.splitlines()[-1].startswith(f"{parameters:,} parameters in ")


def test_architectures_lists_every_class_of_the_catalogue() -> None:
    done = run("architectures")
    text = re.sub(r"\s+", " ", done.stdout)
    for model_type in catalogue.model_types():
        assert f" {model_type} " in f" {text}"
        for name in catalogue.siblings(model_type):
            assert name in text


def test_the_tree_as_json_has_the_formula_and_adds_up() -> None:
    done = run("explain", "gpt2", "--format", "json", env={"PATH": "", "HF_HUB_OFFLINE": "1"})
    found = json.loads(done.stdout)
    assert (done.returncode, found["expected"]["parameters"]) == (0, 124_439_808)
    whole, *modules = found["modules"]
    assert whole["formula"] == found["expected"]["formula"]
    assert sum(row["expected"] for row in modules if row["depth"] == 1) == whole["expected"]
    unknown = run("explain", "no/such", "--format", "json", env={"HF_HUB_OFFLINE": "1"})
    assert unknown.returncode == 3
    assert json.loads(unknown.stdout)["reason"] == "offline"


# --- the tables of those who count by hand ------------------------------------------------------


def _tables(*args: str) -> dict[str, list[dict]]:
    done = run("explain", *args, "--source", "bundled", "--format", "json")
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_a_model_type_alone_is_the_defaults_of_its_config_class() -> None:
    done = run("explain", "gpt2", env={"PATH": "", "HF_HUB_OFFLINE": "1"})
    assert done.returncode == 0
    assert "124,439,808 parameters in 148 tensors" in done.stdout
    large = run("explain", "bert", "--set", "vocab_size=21128", "--as", "AutoModelForMaskedLM")
    assert "102,290,312 parameters" in large.stdout


def test_another_value_is_another_model() -> None:
    """A published count of a large Chinese BERT: 324,472,832 and the pooler's 1,049,600."""
    large = {"vocab_size": 21128, "hidden_size": 1024, "num_hidden_layers": 24}
    large |= {"num_attention_heads": 16, "intermediate_size": 4096}
    given = [word for key, value in large.items() for word in ("--set", f"{key}={value}")]
    (*tensors, total) = _tables("bert", *given, "--tensors")["tensors"]
    assert total["parameters"] == 324_472_832 + 1_049_600
    assert sum(row["parameters"] for row in tensors) == total["parameters"]
    first = tensors[0]
    assert (first["tensor"], first["shape"]) == (
        "embeddings.word_embeddings.weight",
        "21128 x 1024",
    )
    names = [row["tensor"] for row in tensors]
    attention = "encoder.layer.0.attention"
    assert names.index(f"{attention}.self.query.weight") < names.index(
        f"{attention}.output.dense.weight"
    )


def test_kinds_are_those_of_a_hand_count_and_add_up() -> None:
    rows = {row["kind"]: row for row in _tables("bert-base-chinese", "--kinds")["kinds"]}
    assert rows["embeddings"]["all"] == 16_621_056
    assert rows["attention"] == {"kind": "attention", "one layer": 2_359_296, "all": 28_311_552}
    assert rows["feed forward"]["all"] == 56_623_104
    assert rows["normalisation"]["all"] == 38_400
    assert rows["head"]["all"] == 613_256
    assert rows["biases"]["all"] == 36_864 + 46_080
    assert rows["total"]["one layer"] == 7_087_872
    parts = [row["all"] for kind, row in rows.items() if kind not in {"total", "trainable"}]
    assert sum(parts) == rows["total"]["all"] == rows["trainable"]["all"] == 102_290_312


def test_classes_stand_side_by_side() -> None:
    rows = _tables("bert-base-chinese", "--classes")["classes"]
    counts = {row["class"]: row["parameters"] for row in rows}
    assert counts["BertForMaskedLM"] == 102_290_312
    assert counts["BertModel"] == 102_267_648
    assert rows[0]["beside BertForMaskedLM"] == 0


def test_the_table_of_keys_shows_which_change_the_count() -> None:
    effects = {row["key"]: row["effect"] for row in _tables("bert-base-chinese", "--keys")["keys"]}
    assert effects["hidden_size"] == effects["vocab_size"] == "changes the count"
    assert effects["num_attention_heads"] == effects["hidden_act"] == "changes no count"
    assert effects["pooler_fc_size"] == effects["directionality"] == "is not read"


def test_a_table_has_several_forms(tmp_path: Path) -> None:
    file = tmp_path / "table"
    for form, beginning in {
        "markdown": "| class | parameters | beside BertModel |\n| --- | ---: | ---: |\n",
        "csv": "class,parameters,beside BertModel\nBertModel,109482240,0\n",
    }.items():
        args = ("explain", "bert", "--classes", "--format", form)
        assert run(*args, "-o", str(file)).stdout == ""
        assert file.read_text().startswith(beginning)
        assert file.read_text() == run(*args).stdout


def test_an_argument_of_the_class_is_set_as_a_key_is():
    without = run("explain", "bert", "--set", "add_pooling_layer=false")
    assert f"{109_482_240 - 590_592:,} parameters in 197 tensors\n" in without.stdout
    table = run("explain", "bert", "--set", "add_pooling_layer=false", "--format", "csv")
    assert "\ntotal,,108891648,\n" in table.stdout
    report = auditor.explain("bert", settings={"add_pooling_layer": False, "vocab_size": 21128})
    assert report.expected.parameters == 102_267_648 - 590_592


def test_an_argument_that_a_class_does_not_take_is_a_clear_line(subtests):
    for args, said in [
        (("bert", "--as", "BertForMaskedLM", "--set", "add_pooling_layer=false"), "no such argu"),
        (("bert", "--set", "add_pooling_layer=0"), "true or false is needed"),
        (("bert", "--tensors", "--set", "hidden_size"), "hidden_size=1024"),
        (("bert", "--tensors", "--format", "docx"), "--format is 'docx', expected one of"),
        (("llama", "--set", "hiden_size=1024"), "did you mean hidden_size?"),
        (("gemma3", "--set", "text_confg.hidden_size=640"), "did you mean text_config?"),
    ]:
        with subtests.test(args=args, said=said):
            done = run("explain", *args)
            assert (done.returncode, done.stdout) == (2, "")
            assert said in done.stderr


def test_a_value_that_the_class_cannot_build_is_refused_before_any_number(subtests):
    for command in [
        ("explain",),
        ("explain", "--kinds"),
        ("explain", "--format=json"),
        ("claim", "7B"),
    ]:
        with subtests.test(command=command):
            name, *options = command
            done = run(name, "llama", *options, "--set", "hidden_size=1001")
            assert (done.returncode, done.stdout) == (2, "")
            assert "hidden_size 1001 is not a multiple of" in done.stderr


def test_a_config_that_the_class_cannot_build_is_named_beside_its_numbers(subtests, tmp_path):
    for command in [("explain",), ("claim", "110M"), ("memory",)]:
        with subtests.test(command=command):
            place = Path(tempfile.mkdtemp(dir=tmp_path))
            config = {"model_type": "bert", "architectures": ["BertModel"], "hidden_size": 1000}
            (place / "config.json").write_text(json.dumps(config))
            name, *options = command
            done = run(name, str(place), *options)
            assert "bad-config: hidden_size 1000 is not a multiple of" in done.stderr


def test_a_key_of_the_config_is_no_argument():
    with_token, without = (
        auditor.explain("dinov2", settings={"use_mask_token": flag}).expected.parameters
        for flag in (True, False)
    )
    assert with_token - without == 768
