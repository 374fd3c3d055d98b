"""The target is what a repository's own software builds, and not always architectures[0]."""

import json
import tempfile
from pathlib import Path

import pytest
from support.hub import Hub
from support.pipelines import CLIP, POOLING, TRANSFORMER, model, tensors, text, under, written

import auditor
from auditor import Reason, Report, Unaudited, UsageError
from auditor.analytic import catalogue
from auditor.analytic.auto_classes import is_auto, resolve_auto_class
from auditor.checkpoint.snapshot_reader import load
from auditor.checkpoint.snapshot_writer import dump
from auditor.downloader.fetching import fetch
from auditor.findings import BadConfig, Finding, Missing, NewlyInitialized, Unused
from auditor.oracle.transformers_classes import installed_library

SMALL = {
    "vocab_size": 40,
    "hidden_size": 16,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 24,
    "max_position_embeddings": 24,
}
DECODER = {**SMALL, "num_key_value_heads": 2}
T5 = {"vocab_size": 40, "d_model": 16, "d_kv": 8, "d_ff": 24, "num_layers": 2, "num_heads": 2}
CONFIGS = {
    "bert": SMALL,
    "mpnet": SMALL,
    "roberta": SMALL,
    "distilbert": {"vocab_size": 40, "dim": 16, "n_layers": 2, "n_heads": 2, "hidden_dim": 24},
    "qwen2": DECODER,
    "qwen3": {**DECODER, "head_dim": 8},
    "t5": T5,
    "mt5": T5,
    "umt5": T5,
}
SPLADE = {**TRANSFORMER, "type": "sentence_transformers.sparse_encoder.models.MLMTransformer"}
CUSTOM = {"AutoConfig": "configuration_x.XConfig", "AutoModel": "modeling_x.XModel"}
CODE = dict.fromkeys(("configuration_x.py", "modeling_x.py", "bert_layers.py"), b"")


def saved(folder: Path, model_type: str, name: str, declares: str | None = None, **more) -> Path:
    """What save_pretrained writes of a class, in a repository whose config declares another."""
    transformers = pytest.importorskip("transformers", reason="writes the checkpoints")
    values = {**CONFIGS[model_type], "pad_token_id": 0, **more}
    config = transformers.AutoConfig.for_model(model_type, **values)
    getattr(transformers, name)(config).save_pretrained(folder)
    if declares is not None:
        change(folder, architectures=[declares])
    return folder


def change(folder: Path, **values: object) -> None:
    path = folder / "config.json"
    path.write_bytes(text({**json.loads(path.read_bytes()), **values}))


def dropped(folder: Path, *parts: str) -> None:
    """The weights of a folder without the tensors in whose names one of the parts is."""
    safetensors = pytest.importorskip("safetensors.torch")
    path = folder / "model.safetensors"
    stored = safetensors.load_file(path)
    kept = {name: one for name, one in stored.items() if not any(part in name for part in parts)}
    assert len(kept) < len(stored)
    safetensors.save_file(kept, path)


def as_sentences(folder: Path, *modules: dict, **settings: object) -> str:
    (folder / "modules.json").write_bytes(text([*(modules or (TRANSFORMER,)), POOLING]))
    (folder / POOLING["path"]).mkdir(exist_ok=True)
    (folder / POOLING["path"] / "config.json").write_bytes(b"{}")
    if settings:
        (folder / "sentence_bert_config.json").write_bytes(text(settings))
    return str(folder)


def found(outcome: Report | Unaudited, kind: type[Finding]) -> list[str]:
    return [name for one in outcome.findings if kind.describes(one) for name in one.names]


# --- sentence-transformers --------------------------------------------------------------------


@pytest.mark.oracle
def test_a_sentence_encoder_is_what_auto_model_builds_whatever_head_it_declares(subtests, tmp_path):
    for model_type, stores, declares, target in [
        ("mpnet", "MPNetModel", "MPNetForMaskedLM", "MPNetModel"),
        ("roberta", "RobertaModel", "RobertaForMaskedLM", "RobertaModel"),
        ("distilbert", "DistilBertModel", "DistilBertForMaskedLM", "DistilBertModel"),
        ("bert", "BertModel", "BertForMaskedLM", "BertModel"),
        ("qwen2", "Qwen2Model", "Qwen2ForCausalLM", "Qwen2Model"),
        ("qwen3", "Qwen3Model", "Qwen3ForCausalLM", "Qwen3Model"),
        ("qwen3", "Qwen3ForCausalLM", "Qwen3ForCausalLM", "Qwen3Model"),
        ("t5", "T5EncoderModel", "T5EncoderModel", "T5EncoderModel"),
        ("t5", "T5ForConditionalGeneration", "T5ForConditionalGeneration", "T5EncoderModel"),
        ("mt5", "MT5EncoderModel", "MT5ForConditionalGeneration", "MT5EncoderModel"),
        ("umt5", "UMT5EncoderModel", "UMT5ForConditionalGeneration", "UMT5EncoderModel"),
    ]:
        with subtests.test(model_type=model_type, stores=stores, declares=declares, target=target):
            place = Path(tempfile.mkdtemp(dir=tmp_path))
            folder = saved(place, model_type, stores, declares)
            report = auditor.audit(as_sentences(folder))
            assert (report.target, report.verdict, report.residual) == (target, "clean", 0)
            if declares != target:
                assert any(
                    f"as {target}; the config declares {declares}" in note for note in report.notes
                )
            dropped(folder, "layers.1.", "layer.1.", "block.1.")
            assert auditor.audit(str(folder)).verdict == "findings"


@pytest.mark.oracle
def test_custom_code_of_auto_model_is_named_with_its_remedy_and_not_as_audited(tmp_path):
    """As jina-embeddings-v2, which declares another class of its own code."""
    folder = saved(tmp_path, "bert", "BertModel")
    code = {"AutoModel": "code.JinaBertModel", "AutoModelForMaskedLM": "code.JinaBertForMaskedLM"}
    change(folder, architectures=["JinaBertForMaskedLM"], auto_map=code)
    (folder / "code.py").write_text("")
    safetensors = pytest.importorskip("safetensors.torch")
    tensors = safetensors.load_file(folder / "model.safetensors")
    tensors["encoder.layer.0.mlp.gated.weight"] = tensors["pooler.dense.weight"].clone()
    safetensors.save_file(tensors, folder / "model.safetensors")
    report = auditor.audit(as_sentences(folder))
    assert (report.verdict, report.reason.value) == ("unaudited", "custom-code")
    assert [one.cause for one in report.diagnosis] == ["custom-code"]
    assert not any("audited as" in note for note in report.notes)


@pytest.mark.oracle
def test_a_pooler_is_missed_only_by_who_pools_with_it(tmp_path):
    folder = saved(tmp_path, "bert", "BertModel")
    dropped(folder, "pooler")
    assert found(auditor.audit(str(folder)), Missing)
    report = auditor.audit(as_sentences(folder))
    assert (report.verdict, report.residual) == ("clean", 0)
    assert found(report, NewlyInitialized) == ["pooler.dense.weight", "pooler.dense.bias"]
    text_modality = {"method": "forward", "method_output_name": "pooler_output"}
    report = auditor.audit(as_sentences(folder, modality_config={"text": text_modality}))
    assert found(report, Missing) == ["pooler.dense.weight", "pooler.dense.bias"]


@pytest.mark.oracle
def test_a_sparse_encoder_needs_its_head(subtests, tmp_path):
    for modules, settings in [((SPLADE,), {}), ((TRANSFORMER,), {"transformer_task": "fill-mask"})]:
        with subtests.test(modules=modules, settings=settings):
            place = Path(tempfile.mkdtemp(dir=tmp_path))
            whole = saved(place / "whole", "bert", "BertForMaskedLM")
            assert auditor.audit(as_sentences(whole, *modules, **settings)).verdict == "clean"
            bare = saved(place / "bare", "bert", "BertModel")
            assert auditor.audit(str(bare)).verdict == "clean"
            report = auditor.audit(as_sentences(bare, *modules, **settings))
            assert report.target == "BertForMaskedLM"
            assert "cls.predictions.transform.dense.weight" in found(report, Missing)


@pytest.mark.oracle
def test_the_task_of_a_module_selects_its_auto_class(subtests, tmp_path):
    for task, stores in [
        ("sequence-classification", "BertForSequenceClassification"),
        ("retrieval", "BertModel"),
    ]:
        with subtests.test(task=task, stores=stores):
            place = Path(tempfile.mkdtemp(dir=tmp_path))
            folder = as_sentences(saved(place, "bert", stores), transformer_task=task)
            report = auditor.audit(folder)
            assert (report.target, report.verdict) == (stores, "clean")


def test_a_module_may_change_the_config_that_it_is_loaded_with(tmp_path):
    config = {"model_type": "bert", "architectures": ["BertModel"], **SMALL}
    short = {**config, "num_hidden_layers": 1}
    folder = Path(written(tmp_path, {**model(short), "config.json": text(config)}))
    assert auditor.audit(as_sentences(folder)).verdict == "findings"
    for key in ("config_kwargs", "config_args"):
        report = auditor.audit(as_sentences(folder, **{key: {"num_hidden_layers": 1}}))
        assert (report.verdict, report.residual) == ("clean", 0)


def test_unreadable_settings_are_a_finding_as_well_as_the_comparison(tmp_path):
    config = {"model_type": "bert", "architectures": ["BertForMaskedLM"], **SMALL}
    stored = tensors({**config, "architectures": ["BertModel"]})
    folder = Path(written(tmp_path, model(config, stored)))
    as_sentences(folder)
    (folder / "sentence_bert_config.json").write_bytes(b"{")
    report = auditor.audit(str(folder))
    assert [(one.kind, one.file) for one in report.findings] == [
        (BadConfig.kind, "sentence_bert_config.json")
    ]
    assert (report.target, report.residual) == ("BertModel", 0)


def test_a_module_may_be_in_the_folder_itself_however_that_is_written(subtests, tmp_path):
    for path in ["", ".", "./", "0_Transformer", "./0_Transformer/"]:
        with subtests.test(path=path):
            place = Path(tempfile.mkdtemp(dir=tmp_path))
            config = {"model_type": "bert", "architectures": ["BertForMaskedLM"], **SMALL}
            stored = tensors({**config, "architectures": ["BertModel"]})
            settings = {
                "sentence_bert_config.json": text({"transformer_task": "feature-extraction"})
            }
            files = {**model(config, stored), **settings}
            inside = path.strip("./")
            folder = Path(written(place, under(inside, files) if inside else files))
            report = auditor.audit(as_sentences(folder, {**TRANSFORMER, "path": path}))
            assert (report.verdict, report.residual) == ("clean", 0)


def test_a_snapshot_has_the_files_that_name_its_loader(at_hub: Hub):
    config = {"model_type": "bert", "architectures": ["BertModel"], **SMALL}
    head = {**config, "architectures": ["BertForMaskedLM"]}
    for where in ("", "0_Transformer"):
        files = {
            **model(head),
            "sentence_bert_config.json": text({"transformer_task": "fill-mask"}),
        }
        files = under(where, files) if where else files
        files["modules.json"] = text([{**TRANSFORMER, "path": where}, POOLING])
        files |= under(POOLING["path"], {"config.json": b"{}"})
        at_hub.add(f"org/sparse{len(where)}", files)
        snapshot = fetch(f"org/sparse{len(where)}")
        again = load(dump(snapshot), "snapshot.json")
        assert (again.settings, again.components) == (snapshot.settings, snapshot.components)
        first, second = (
            auditor.examine(one, auditor.Options(requested="x")) for one in (snapshot, again)
        )
        assert first.findings == second.findings
        assert first.verdict == second.verdict == "clean"


@pytest.mark.oracle
@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")
def test_an_adapter_of_an_encoder_may_be_of_the_model_without_the_head(at_hub: Hub, tmp_path):
    peft = pytest.importorskip("peft", reason="writes the adapter")
    transformers = pytest.importorskip("transformers")
    config = transformers.AutoConfig.for_model("mpnet", **SMALL, pad_token_id=0)
    lora = peft.LoraConfig(r=2, target_modules=["attn.q"])
    whole = peft.get_peft_model(transformers.MPNetModel(config), lora)
    whole.save_pretrained(tmp_path)
    settings = json.loads((tmp_path / "adapter_config.json").read_bytes())
    path = tmp_path / "adapter_config.json"
    path.write_bytes(text({**settings, "base_model_name_or_path": "org/b", "auto_mapping": None}))
    declared = {**config.to_dict(), "architectures": ["MPNetForMaskedLM"]}
    at_hub.add("org/b", {"config.json": text(declared)})
    report = auditor.audit(str(tmp_path))
    assert (report.verdict, report.residual) == ("clean", 0)


# --- diffusers --------------------------------------------------------------------------------


def test_a_part_of_a_pipeline_needs_what_the_class_in_the_manifest_has(tmp_path):
    index = {"_class_name": "One", "text_encoder": ["transformers", "CLIPTextModelWithProjection"]}
    projected = tensors({**CLIP, "architectures": ["CLIPTextModelWithProjection"]})
    for stored, missing in ((projected, []), (tensors(CLIP), ["text_projection.weight"])):
        files = {"model_index.json": text(index), **under("text_encoder", model(CLIP, stored))}
        (part,) = auditor.audit(written(tmp_path, files)).parts
        assert part.target == "CLIPTextModelWithProjection"
        assert found(part, Missing) == missing


# --- the repository's own code ----------------------------------------------------------------


def mosaic(name: str) -> str:
    return name.replace("attention.self.query", "attention.self.Wqkv")


def test_a_class_of_the_repositorys_own_is_compared_only_if_its_names_fit(subtests, tmp_path):
    for declares in ["BertForMaskedLM", "MosaicBertForMaskedLM"]:
        with subtests.test(declares=declares):
            place = Path(tempfile.mkdtemp(dir=tmp_path))
            config = {"model_type": "bert", "architectures": ["BertForMaskedLM"], **SMALL}
            stored = tensors(config)
            custom = {
                **config,
                "architectures": [declares],
                "auto_map": {**CUSTOM, "AutoModelForMaskedLM": f"bert_layers.{declares}"},
            }
            other = {mosaic(name): tensor for name, tensor in stored.items() if ".key." not in name}
            outcome = auditor.audit(written(place, {**model(custom, other), **CODE}))
            assert isinstance(outcome, Unaudited)
            known = declares == "BertForMaskedLM"
            assert outcome.reason is (Reason.CUSTOM_CODE if known else Reason.UNKNOWN_ARCHITECTURE)
            assert outcome.findings == ()
            assert f"'bert_layers.{declares}'" in outcome.detail
            assert outcome.observed.tensors == len(other)
            assert outcome.expected is None
            if known:
                assert (
                    "has no 'encoder.layer.#.attention.self.Wqkv.bias' and 1 more kind"
                    in outcome.detail
                )
                fitting = auditor.audit(written(place, model(custom, stored)))
                assert (fitting.verdict, fitting.residual) == ("clean", 0)
                assert any("'bert_layers.BertForMaskedLM'" in note for note in fitting.notes)


def test_code_that_weights_alone_need_is_looked_for(subtests, tmp_path):
    for model_type, auto_map, absent in [
        ("mine", CUSTOM, True),
        ("bert", CUSTOM, True),
        ("mine", {"AutoModel": "org/repository--modeling_x.XModel"}, False),
        ("bert", {"AutoModel": "modeling_x.BertModel"}, False),  # transformers has it too
    ]:
        with subtests.test(model_type=model_type, auto_map=auto_map, absent=absent):
            place = Path(tempfile.mkdtemp(dir=tmp_path))
            config = {"architectures": ["BertModel"], **SMALL, "auto_map": auto_map}
            stored = tensors({**config, "model_type": "bert", "auto_map": {}})
            outcome = auditor.audit(
                written(place, model({**config, "model_type": model_type}, stored))
            )
            assert ["code-not-there"] * absent == [one.kind for one in outcome.findings]
            assert not (absent and any("trust_remote_code" in one.fix for one in outcome.diagnosis))


def test_code_that_transformers_took_over_is_compared_whether_it_fits_or_not(tmp_path):
    config = {"model_type": "phi3", "architectures": ["Phi3ForCausalLM"], **DECODER}
    config["auto_map"] = {"AutoModelForCausalLM": "modeling_phi3.Phi3ForCausalLM"}
    stored = tensors(config)
    del stored["lm_head.weight"]
    report = auditor.audit(written(tmp_path, model(config, stored)))
    assert found(report, Missing) == ["lm_head.weight"]
    assert any("took over under that name" in note for note in report.notes)
    config["auto_map"] = {"AutoModelForCausalLM": "modeling_phi3_v.Phi3VForCausalLM"}
    assert auditor.audit(written(tmp_path, model(config, stored))).reason is Reason.CUSTOM_CODE


@pytest.mark.slow
def test_names_that_fit_are_compared_to_the_last_tensor(tmp_path):
    config = {"model_type": "llama", "architectures": ["LlamaForCausalLM"], **DECODER}
    config["auto_map"] = {"AutoModelForCausalLM": "modeling_llama.LlamaForCausalLM"}
    stored = tensors(config)
    lost = "model.layers.1.mlp.up_proj.weight"
    del stored[lost]
    report = auditor.audit(written(tmp_path, model(config, stored)))
    assert (found(report, Missing), report.residual) == ([lost], 0)
    too_many = {"model.layers.2.mlp.up_proj.weight": ("F32", (24, 16)), **tensors(config)}
    report = auditor.audit(written(tmp_path, model(config, too_many)))
    assert report.verdict == "findings"
    del too_many["lm_head.weight"]  # a kind of its own: who knows what the class has in its place
    outcome = auditor.audit(written(tmp_path, model(config, too_many)))
    assert outcome.reason is Reason.CUSTOM_CODE
    assert "has lm_head.weight, and no file stores it" in outcome.detail


def test_a_config_of_the_repositorys_own_is_no_broken_config_of_transformers(tmp_path):
    config = {"model_type": "bert", "architectures": ["BertModel"], "auto_map": CUSTOM, **SMALL}
    config["hidden_size"] = "wide"
    files = {**model(config, {"a.weight": ("F32", (2,))}), **CODE}
    outcome = auditor.audit(written(tmp_path, files))
    assert (outcome.reason, outcome.findings) == (Reason.CUSTOM_CODE, ())
    assert "hidden_size" in outcome.detail


def test_an_auto_map_without_models_changes_nothing(subtests, tmp_path):
    for auto_map in [
        None,
        [],
        {},
        {"AutoTokenizer": ["x.T", None]},
        {"AutoModel": None},
        {"AutoModel": ""},
        {"AutoModel": "x" * 300},
        {"AutoConfig": "x.C"},
    ]:
        with subtests.test(auto_map=auto_map):
            place = Path(tempfile.mkdtemp(dir=tmp_path))
            config = {"model_type": "bert", "architectures": ["BertModel"], **SMALL}
            plain = auditor.audit(written(place, model(config, {"a.weight": ("F32", (2,))})))
            other = {**config, "auto_map": auto_map}
            report = auditor.audit(written(place, model(other, {"a.weight": ("F32", (2,))})))
            assert (report.findings, report.target) == (plain.findings, plain.target)


def test_a_class_that_the_user_names_is_compared_whatever_code_there_is(tmp_path):
    config = {"model_type": "bert", "architectures": ["BertModel"], "auto_map": CUSTOM, **SMALL}
    folder = written(tmp_path, model(config, {"a.weight": ("F32", (2,))}))
    assert auditor.audit(folder).reason is Reason.CUSTOM_CODE
    assert found(auditor.audit(folder, target="BertModel"), Missing)


# --- auto classes -----------------------------------------------------------------------------


def test_an_auto_class_can_be_requested(tmp_path):
    config = {"model_type": "bert", "architectures": ["BertForMaskedLM"], **SMALL}
    folder = written(tmp_path, model(config))
    for auto, target in (("AutoModel", "BertModel"), ("AutoModelForCausalLM", "BertLMHeadModel")):
        report = auditor.audit(folder, target=auto)
        assert (report.target, report.verdict) == (target, "clean")
    report = auditor.audit(folder, target="AutoModelForSequenceClassification")
    assert len(found(report, NewlyInitialized)) == 4  # a pooler and a classifier
    assert found(report, Unused)
    outcome = auditor.audit(folder, target="AutoModelForCTC")
    assert outcome.reason is Reason.UNKNOWN_ARCHITECTURE
    assert "AutoModelForCTC builds of model_type 'bert'" in outcome.detail
    with pytest.raises(UsageError, match="AutoNothing"):
        auditor.audit(folder, target="AutoNothing")


@pytest.mark.oracle
def test_auto_classes_build_what_the_library_builds():
    library = installed_library()
    if library is None:
        pytest.skip("without transformers nobody else says it")
    assert "AutoModelForCausalLM" in library.autos
    differ = [
        (auto, model_type)
        for auto, rows in library.autos.items()
        for model_type in catalogue.model_types()
        if model_type != "transformer-2017"
        and _known(rows.get(model_type), model_type) != _ours(auto, model_type)
    ]
    # Types that AutoModel does not list and that their own class names build all the same.
    others = ("rag", "siglip_text_model", "vision-encoder-decoder", "vitmatte")
    assert differ == [("AutoModel", model_type) for model_type in others]
    assert all(is_auto(auto) for auto in library.autos)


def _known(name: str | None, model_type: str) -> str | None:
    return name if name in catalogue.siblings(model_type) else None


def _ours(auto: str, model_type: str) -> str | None:
    return resolve_auto_class(
        auto, catalogue.base_class(model_type), catalogue.siblings(model_type)
    )
