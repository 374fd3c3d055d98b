"""An outcome with a finding of each kind."""

from support.outcomes.making import expected, row, stored

from auditor import findings as of
from auditor.analytic import Role
from auditor.checkpoint.snapshot import Fetched, Source
from auditor.reconciler.loading.report import LoadReport, Mismatch
from auditor.report import Expected, Observed, Report


def every_kind():
    """One finding of each kind, and one ignored.

    45 stored - 50 expected = -5: missing -12, newly-initialized -6, unexpected 7, unused 9,
    mismatched 2, behind files -10, ignored 5.
    """
    return Report(
        requested="someone/every-kind@v2",
        model="someone/every-kind",
        commit="0123456789abcdef0123456789abcdef01234567",
        source=Source.HUB,
        origin="read from the Hub",
        declared=("BertForMaskedLM",),
        target="BertModel",
        model_type="bert",
        expected=Expected(
            by="oracle", library="transformers 5.23.0", tensors=9, parameters=50, formula="50"
        ),
        observed=Observed(
            files=2,
            bytes=180,
            tensors=14,
            elements=45,
            parameters=45,
            trainable=40,
            by_dtype=(("F16", 5), ("F32", 40)),
        ),
        modules=(
            row("", 14, 45, 50, "differs", of=45),
            row("encoder", 14, 45, 50, "differs", of=45),
            *(row(f"encoder.{n}", 2, 6, 6, "equal", of=45) for n in (0, 1, 2, 10)),
            row("encoder.3", 2, 2, 14, "missing", of=45),
            row("encoder.4", 4, 19, 12, "differs", of=45),
        ),
        load_report=LoadReport(
            missing=("encoder.3.bias", "encoder.3.weight"),
            unexpected=("foo",),
            mismatched=(Mismatch("encoder.4.bias", (6,), (4,)),),
            raises="encoder.3.weight cannot be made of what is stored",
        ),
        in_memory={
            "foo": ("foo",),
            "encoder.3.bias": ("encoder.3.bias",),
            "encoder.3.weight": ("encoder.3.weight",),
            "encoder.1.gamma": ("encoder.1.weight",),
            "encoder.4.bias": ("encoder.4.bias",),
        },
        findings=(
            of.Unused(
                tensors=(stored("pooler.weight", 3, 3),),
                used_by=("BertForPreTraining", "BertModel"),
                reason="BertForMaskedLM does not use it; BertForPreTraining and BertModel do",
            ),
            of.Missing(
                tensors=(expected("encoder.3.bias", 4), expected("encoder.3.weight", 4, 2)),
                reason="the declared class needs it and no file stores it",
            ),
            of.NewlyInitialized(
                tensors=(expected("classifier.weight", 2, 3),), reason="only the target uses it"
            ),
            of.Unexpected(tensors=(stored("foo", 7),), reason="no class of this family has it"),
            of.UnusedHead(
                tensors=(stored("score.weight", 3, 3),),
                used_by=("BertForSequenceClassification",),
                copies=True,
                reason="BertModel has no such head; BertForSequenceClassification uses all",
            ),
            of.StoredBuffer(
                tensors=(stored("position_ids", 1, 8, dtype="I64"),), reason="not learned"
            ),
            of.QuantizationData(
                tensors=(stored("encoder.4.scales", 2),), reason="scales of a weight"
            ),
            of.BadQuantization(
                tensors=(stored("encoder.5.qweight", 2, 3, dtype="I32"),),
                reason="qweight (2, 3) holds 32/4 x 2 = 16 inputs, the architecture has 24",
            ),
            of.UnmatchedModules(
                says=(("config.json", "quantization_config.ignore", '["head"]'),),
                reason="ignore of quantization_config: one entry matches no module: 'head'",
                fix="remove it from ignore, or write it as the files name the module",
            ),
            of.Duplicate(
                tensors=(stored("encoder.0.weight", 2, 3, file="b.safetensors"),),
                of=("encoder.0.weight",),
                reason="the same name is stored in a.safetensors as well",
            ),
            of.WrongDtype(
                tensors=(stored("encoder.4.weight", 5, dtype="F16"),),
                declared="F32",
                reason="stored as F16, the config declares F32",
            ),
            of.Mismatched(
                pairs=(
                    of.MatchedPair(
                        stored=stored("encoder.4.bias", 6), expected=expected("encoder.4.bias", 4)
                    ),
                ),
                reason="stored as (6), expected (4)",
            ),
            of.Renamed(
                pairs=(
                    of.MatchedPair(
                        stored=stored("encoder.1.gamma", 3),
                        expected=expected("encoder.1.weight", 3),
                    ),
                ),
                reason="an older name",
            ),
            of.TiedWeight(
                tensors=(expected("decoder.weight", 2, 3, role=Role.TIED),),
                tied_to=("encoder.0.weight",),
                reason="it shares the values of another tensor",
            ),
            of.OtherWeights(files=("pytorch_model.bin",), reason="not of the audited set"),
            of.EqualsBase(
                files=("model.safetensors",), reason="all of it is org/base, byte for byte"
            ),
            of.FormulaDisputed(
                target="BertModel",
                disputes=(
                    of.DisputedTensor(
                        name="encoder.0.weight",
                        closed_form=expected("encoder.0.weight", 2, 3),
                        oracle=None,
                    ),
                    of.DisputedTensor(
                        name="encoder.10.weight",
                        closed_form=expected("encoder.10.weight", 3, 2),
                        oracle=expected("encoder.10.weight", role=Role.TIED, tied_to="foo"),
                    ),
                ),
                reason="the closed form has them otherwise than transformers 5.23.0",
            ),
            of.BadHeader(
                file="c.safetensors",
                hidden=(expected("encoder.5.weight", 2, 5),),
                reason="the header is not JSON",
            ),
            of.BadIndex(
                file="model.safetensors.index.json",
                tensors=("encoder.6.bias", "encoder.6.weight"),
                reason="the index names them and no shard holds them",
            ),
            of.BadSize(file="a.safetensors", reason="8 + 100 + 180 bytes declared, 280 there"),
            of.BadDigest(file="b.safetensors", reason="its sha256 is 0a.., the listing says 0b.."),
            of.WrongTotal(
                file="model.safetensors.index.json",
                reason="total_parameters is 46, the shards hold 45 parameters: +1",
            ),
            of.BadConfig(file="config.json", reason="hidden_size is 0"),
            of.Unsafe(
                file="pytorch_model.bin",
                reason="loading pytorch_model.bin would import posix.system('id')",
                imports=("posix.system('id') at byte 2",),
            ),
            of.MissingComponent(
                declared_in="model_index.json", folders=("vae",), reason="no file of it is there"
            ),
            of.AdapterBeside(file="adapter_config.json", reason="an adapter is in the folder"),
            of.CopyDiffers(
                file="pytorch_model.bin",
                reason="pytorch_model.bin lacks 1 tensor that the audited files have: 'a'",
                tensors=("a",),
            ),
            of.HubCount(
                where="safetensors.total",
                text="20",
                claim=20,
                actual=45,
                reason="the Hub shows 20 parameters, and the model has 45",
            ),
            of.ClaimedSize(
                where="every-kind-7b",
                text="7b",
                claim=7_000_000_000,
                actual=45,
                reason="the name says 7b, and the model has 45 parameters",
            ),
            *of_repository(),
            of.NotFinite(
                tensors=(stored("encoder.0.weight", 2, 3),),
                counts=((2, 1),),
                reason="3 of 6 numbers that were read are NaN (2) or infinite (1)",
            ),
            of.AllZero(tensors=(stored("encoder.1.weight", 2, 3),), reason="each of 6 is zero"),
            of.NoOpAdapter(tensors=(stored("lora_B.weight", 2, 3),), reason="it adds nothing"),
            of.TiedCopyDiffers(
                tensors=(stored("head.weight", 2, 3),),
                of=("encoder.0.weight",),
                reason="their numbers are not the same",
            ),
            of.EqualDuplicate(
                tensors=(stored("copy.weight", 2, 3),),
                of=("encoder.0.weight",),
                reason="both copies hold the same bytes",
            ),
            of.DifferingDuplicate(
                tensors=(stored("encoder.0.weight", 2, 3, file="c.safetensors"),),
                of=("encoder.0.weight",),
                reason="the same name is stored in a.safetensors as well; their bytes differ",
            ),
            of.HeadEqualsEmbedding(
                tensors=(stored("lm_head.weight", 2, 3),),
                of=("words.weight",),
                reason="it has the bytes of words.weight, and the config does not tie them",
            ),
            of.FreshHead(tensors=(stored("classifier.bias", 2),), reason="biases of 0"),
            of.UntrainedRows(
                tensors=(stored("words.weight", 4, 2),), rows=(1, 3), reason="2 tokens have none"
            ),
            of.PaddedDtype(tensors=(stored("encoder.0.weight", 2, 3),), reason="BF16 would do"),
            of.RepeatedLayers(
                tensors=(stored("encoder.0.weight", 2, 3), stored("encoder.1.weight", 2, 3)),
                layers=(("encoder.0", "encoder.1"),),
                reason="encoder.0 and encoder.1 are the same",
            ),
            of.PartZero(tensors=(stored("encoder.0.weight", 2, 3),), reason="half of it is zero"),
            of.ConstantMatrix(
                tensors=(stored("encoder.0.weight", 2, 3),), reason="each is one number"
            ),
            of.Outlier(tensors=(stored("encoder.0.weight", 2, 3),), reason="the largest is 1e+30"),
            of.Subnormal(tensors=(stored("encoder.0.weight", 2, 3),), reason="half is subnormal"),
            of.MislabeledDtype(tensors=(stored("encoder.0.weight", 2, 3),), reason="it is BF16"),
            of.Untrained(tensors=(stored("encoder.0.weight", 2, 3),), reason="as initialized"),
            of.CopiedModules(
                tensors=(stored("encoder.0.weight", 2, 3), stored("encoder.1.weight", 2, 3)),
                layers=(("encoder.0", "encoder.1"),),
                reason="1 matrix of encoder.0 is equal to that of encoder.1",
            ),
            of.MeanRows(
                tensors=(stored("words.weight", 4, 2),), rows=(3,), reason="row 3 is the mean"
            ),
            of.IdleModules(tensors=(stored("lora_B.weight", 2, 3),), reason="1 of 2 adds nothing"),
            of.AddedBiasZero(tensors=(stored("encoder.0.bias", 0),), reason="harmless"),
            of.AddedBiasNotZero(tensors=(stored("encoder.1.bias", 0),), reason="left out"),
        ),
        ignored=(
            of.Unexpected(tensors=(stored("bar", 5),), reason="no class of this family has it"),
        ),
        notes=("audited as BertModel, as asked",),
        unchecked=("quant_type: not one we know",),
        residual=0,
        fetched=Fetched(requests=6, bytes=48_123, seconds=0.4179),
    )


def of_repository():
    """One finding of each kind that is about what stands beside the weights."""
    return (
        of.TokenBeyondEmbedding(
            says=(("tokenizer.json", "added_tokens.32000", '"<pad>"'),),
            ids=(32_000,),
            rows=32_000,
            rows_of="embed_tokens.weight",
            reason="tokenizer.json: '<pad>' 32,000; embed_tokens.weight has 32,000 rows",
            fix="resize the embedding to 32,001 rows",
        ),
        of.SpecialIdBeyondVocabulary(
            says=(("generation_config.json", "pad_token_id", "32001"),),
            ids=(32_001,),
            rows=32_000,
            rows_of="embed_tokens.weight",
            reason="generation_config.json: pad_token_id 32001",
            fix="set pad_token_id to the id that the tokenizer gives the token",
        ),
        of.EosDisagrees(
            says=(
                ("config.json", "eos_token_id", "2"),
                ("generation_config.json", "eos_token_id", "3"),
            ),
            reason="config.json: eos_token_id 2; generation_config.json: eos_token_id 3",
            fix="set eos_token_id of generation_config.json to [2, 3]",
            ids=(2, 3),
        ),
        of.ChatTurnsWrong(
            says=(("tokenizer_config.json", "eos_token", '"the"'),),
            reason='eos_token of tokenizer_config.json is "the", an ordinary word',
            fix="set eos_token to the token at which the model was trained to stop",
        ),
        of.TokenizerNote(
            says=(("tokenizer.json", "truncation.max_length", "64"),),
            reason="tokenizer.json truncates at 64 tokens, the model takes 256",
            fix="set truncation of tokenizer.json to null",
        ),
        of.ChatTemplateBroken(
            says=(("chat_template.jinja", "", ""),),
            reason="chat_template.jinja: the chat template does not parse: line 1: unexpected '}'",
            fix="correct the chat template in chat_template.jinja",
        ),
        of.ConfigOverwritten(
            says=(("config.json", "word_embedding_dimension", "384"),),
            reason="config.json has the settings of a Pooling module",
            fix="upload the config of the Transformer as config.json",
        ),
        of.ShardsNotLoaded(
            file="diffusion_pytorch_model.bin.index.json",
            reason="from_pretrained of diffusers looks for torch shards only with "
            "use_safetensors=False",
        ),
        of.Refused(
            tensors=(stored("blk.0.attn_q.weight.absmax", 0, 0, file="m.gguf"),),
            reason="llama.cpp refuses a file with a tensor that it does not use",
        ),
        of.MetadataContradiction(
            says=(
                ("m.gguf", "llama.expert_used_count", "6"),
                ("m.gguf", "llama.expert_count", "4"),
            ),
            reason="llama.expert_used_count is 6, expected 1 to 4 (llama.expert_count is 4)",
            fix="take the number from the config of the original model",
        ),
        of.ConfigContradiction(
            says=(
                ("config.json", "torch_dtype", '"float16"'),
                ("config.json", "dtype", '"bfloat16"'),
            ),
            reason='torch_dtype is "float16", dtype "bfloat16": transformers 5.23 takes dtype',
            fix="remove the one that is not meant",
        ),
        of.GenerationConfigInvalid(
            says=(("generation_config.json", "top_p", "0.5"),),
            reason="top_p 0.5: only sampling reads it, and do_sample is not true",
            fix="remove top_p, or set what it needs",
        ),
        of.UnknownConfigKey(
            says=(
                ("config.json", "num_hidden_layer", "3"),
                ("config.json", "num_hidden_layers", "12"),
            ),
            reason="num_hidden_layer is 3, and no class of model type bert reads it",
            fix="rename num_hidden_layer to num_hidden_layers",
        ),
        of.CodeNotThere(
            says=(("config.json", "auto_map.AutoModel", '"modeling_x.X"'),),
            reason="code is not in the repository: modeling_x.py",
            fix="upload modeling_x.py",
        ),
        of.ProcessorMissing(
            says=(("config.json", "model_type", '"vit"'),),
            reason="model_type vit wants a processor, and none is there",
            fix="save the processor beside the model",
        ),
        of.ProcessorUnknown(
            says=(("preprocessor_config.json", "image_processor_type", '"ViTProcessor"'),),
            reason="transformers has no class ViTProcessor",
            fix="set image_processor_type to ViTImageProcessor",
        ),
        of.EngineRefuses(
            engine="mlx",
            version="0.32.2",
            reason="mlx 0.32.2 does not load it: the names lack the prefix model.",
        ),
    )
