"""The table of kinds: name, evidence, meaning, what to do, and details for whoever asks for them.

A row makes its findings: `BadIndex(file=..., reason=...)`. `audit explain-finding`,
docs/findings.md and the rules in SARIF print the texts.
"""

# ruff: noqa: F403, F405 - each class of evidence is named in a row
from auditor.findings.evidence import *
from auditor.findings.finding import *

Missing = ErrorKind(
    "missing",
    OfExpected,
    "The declared class needs the tensor, and no file stores it.",
    "Upload the weights again, or declare in `architectures` the class that was saved: loading "
    "would start the tensor from random values.",
)
NewlyInitialized = InfoKind(
    "newly-initialized",
    OfInitialized,
    "The target class has the tensor and the checkpoint does not: loading initializes it.",
    "Fine-tune the model before you use what the tensor computes: its values are random. A counter "
    "of batches computes nothing.",
    details="The declared class, or the repository's own loader, does not need the tensor.",
)
Unexpected = WarningKind(
    "unexpected",
    OfStored,
    "A tensor is stored that no class of the model's family uses.",
    "Remove it before you publish, or correct `architectures` and the config if the model needs "
    "it: loading leaves it out.",
    details="If there are more than MOST_NAMED such tensors, only the first ones are named.",
)
Refused = ErrorKind(
    "unexpected",
    OfStored,
    "A GGUF file stores a tensor that its architecture does not have: llama.cpp refuses the file.",
    "Convert the model again, from unpacked weights, with a version of llama.cpp that knows it.",
)
Unused = InfoKind(
    "unused",
    OfUnused,
    "The target class does not use the tensor, and another class of its family does.",
    "Nothing; load the class that the finding names if you need the tensor.",
)
UnusedHead = WarningKind(
    "unused-head",
    OfUnused,
    "The declared class does not use a stored head, and a class with that head uses all tensors.",
    "Declare in `architectures` the class that was saved, or save the declared class without the "
    "head.",
    details="transformers' auto classes select a class by `model_type` and the task; vLLM and "
    "llama.cpp's converter select it by `architectures`, and leave the head out. The head of a "
    "pretraining task is `unused` instead.",
)
StoredBuffer = InfoKind(
    "buffer",
    OfUncounted,
    "A tensor is stored that is not learned: position_ids, inv_freq, an attention mask.",
    "Nothing; it is not counted as parameters.",
)
QuantizationData = InfoKind(
    "quantization-data",
    OfUncounted,
    "A quantized weight needs the tensor to be unpacked: scales, zero points, g_idx, absmax.",
    "Nothing; it is not counted as parameters.",
)
BadQuantization = ErrorKind(
    "bad-quantization",
    OfUncounted,
    "Packed tensors contradict their layout, the quantization config or the architecture.",
    "Correct the bits, the group size or the list of modules in `quantization_config`, or quantize "
    "the model again.",
)
UnmatchedModules = InfoKind(
    "unmatched-modules",
    OfKeys,
    "A list of modules in the quantization config has entries that match no module of the model.",
    "Nothing if the list is a recipe for several models; otherwise write the names of the files.",
    details="Loaders skip such an entry without a word. A module that should have been left out is "
    "`bad-quantization` or `config-contradiction`.",
)
Duplicate = WarningKind(
    "duplicate",
    OfCopies,
    "A parameter is stored twice: under two names, or in two shards.",
    "Save the model again with `save_pretrained`, which stores it once; until then, check that "
    "both copies have the same values.",
)
WrongDtype = WarningKind(
    "wrong-dtype",
    OfUncounted,
    "A tensor is stored in another dtype than the config declares.",
    "Save the weights in the declared dtype, or set `dtype` to the one in which most are stored.",
)
Mismatched = ErrorKind(
    "mismatched",
    OfMismatches,
    "A tensor is stored under the right name, with another shape than expected.",
    "Save config and weights again together; or correct the size in the config (`vocab_size` after "
    "new tokens, for example).",
)
Renamed = InfoKind(
    "renamed",
    OfPairs,
    "A tensor is stored under an older or a prefixed name, which loading translates.",
    "Nothing for transformers; other software may need the names that `save_pretrained` writes "
    "today.",
)
TiedWeight = InfoKind(
    "tied",
    OfTied,
    "A tensor is not stored, and need not be: it shares the values of another one.",
    "Nothing; its parameters are counted once.",
)
FormulaDisputed = WarningKind(
    "formula-disputed",
    OfDisputes,
    "Our closed form and transformers do not expect the same tensors: one of the two is wrong.",
    "Report it to this project with the model's name; the checkpoint itself may be sound.",
)
OtherWeights = InfoKind(
    "other-weights",
    OfFiles,
    "A weight file is not part of what was audited: a variant, another framework, another folder.",
    "Nothing; audit it by its own path or with `--variant` if you load it.",
)
BadHeader = ErrorKind(
    "bad-header",
    OfFile,
    "The header of a weight file cannot be read, breaks the format, or is refused by its loader.",
    "Upload the file again; if it is a Git LFS pointer, push the file that it stands for. Save a "
    "torch file again, with tensors, numbers and strings alone, if torch.load refuses its values.",
)
BadIndex = ErrorKind(
    "bad-index",
    OfFile,
    "The index of the shards cannot be read, or contradicts the files.",
    "Upload the shards that it names, or save the model again, with a new index.",
)
ShardsNotLoaded = ErrorKind(
    "shards-not-loaded",
    OfFile,
    "A component of diffusers is stored in torch shards, which from_pretrained finds only if told.",
    "Save the component again as safetensors, or load it with `use_safetensors=False`.",
    details="Without that, diffusers 0.42 looks for the index of safetensors, then for one file.",
)
BadDigest = ErrorKind(
    "bad-digest",
    OfFile,
    "The bytes of a file on this machine are not those that the repository lists for it.",
    "Delete the file and download it again; if it should differ, do not verify it.",
    details="All bytes of the file were read, with `--verify`. No header shows that a download was "
    "interrupted and filled up with zeros, or that a bit flipped.",
)
BadSize = ErrorKind(
    "bad-size",
    OfFile,
    "A file is shorter or longer than its header declares.",
    "Upload the file again, and compare its size with that of the original.",
)
WrongTotal = WarningKind(
    "wrong-total",
    OfFile,
    "The index declares another number of parameters than the files have; no loader reads it.",
    "Correct `total_parameters` in the metadata of the index, or remove it.",
)
BadConfig = ErrorKind(
    "bad-config",
    OfFile,
    "A config cannot be read, no model can be built from it or run, or loading it raises an error.",
    "Correct the value that the reason names; `AutoConfig.from_pretrained` or "
    "`GenerationConfig.from_pretrained` must accept the file.",
)
Unsafe = ErrorKind(
    "unsafe",
    OfImports,
    "Loading the file may run code: it imports unknown names, or cannot be read to its end.",
    "Do not load the file; get the weights as safetensors, or publish them in that format.",
    details="No code of the file was run.",
)
CopyDiffers = WarningKind(
    "copy-differs",
    OfFile,
    "A copy of the weights in another format differs from them, or cannot be compared.",
    "Delete the copy, or convert it again: which weights a user gets depends on what loads them.",
)
AdapterBeside = WarningKind(
    "adapter-beside",
    OfFile,
    "An adapter is in the folder of a complete model, and transformers attaches it on loading.",
    "If it is merged into the weights already, delete or move `adapter_config.json` and "
    "`adapter_model.safetensors`: it would be applied a second time. If it is not, say so in the "
    "model card, or publish it in a repository of its own.",
)
MissingComponent = ErrorKind(
    "missing-component",
    OfFolders,
    "A component that the repository declares is absent, or has no weights.",
    "Upload its folder or its weights, or remove it from the file that declares it.",
)
TokenBeyondEmbedding = ErrorKind(
    "token-beyond-embedding",
    OfKeys,
    "The tokenizer has an id beyond the rows of the embedding; more rows than ids is normal.",
    "Call `model.resize_token_embeddings(len(tokenizer))` and save both, or upload the tokenizer "
    "that the model was trained with.",
)
SpecialIdBeyondVocabulary = ErrorKind(
    "special-id-beyond-vocabulary",
    OfKeys,
    "A special token of the config or the generation config has an id beyond the vocabulary.",
    "Correct the id: look the token up in the tokenizer.",
)
EosDisagrees = WarningKind(
    "eos-disagrees",
    OfKeys,
    "Tokenizer, config and generation config name different end tokens, and no file names all.",
    "Name the tokens at which the model was trained to stop in `generation_config.json`; a list is "
    "normal.",
)
ChatTurnsWrong = WarningKind(
    "chat-turns-wrong",
    OfKeys,
    "Generation begins or ends in the wrong place of a chat, by its template and end tokens.",
    "Name the token at which the model was trained to stop in `tokenizer_config.json` and "
    "`generation_config.json`, or use the chat template that the model was trained with.",
    details="The end token is an ordinary word, the template ends turns with the token of another "
    "format, or it adds no generation prompt, although each turn has a header.",
)
TokenizerNote = InfoKind(
    "tokenizer-note",
    OfKeys,
    "A setting in the tokenizer's files that suits some programs that read them, but not all.",
    "Check that it is intended: a truncation or padding saved in `tokenizer.json`, or a chat "
    "template whose turns end with a token at which generation does not stop.",
)
ChatTemplateBroken = ErrorKind(
    "chat-template-broken",
    OfKeys,
    "The chat template does not parse, or two copies of it differ. It was never rendered.",
    "Correct the template, or delete the copy that is not meant; check it with "
    "`tokenizer.apply_chat_template`.",
)
ConfigOverwritten = ErrorKind(
    "config-overwritten",
    OfKeys,
    "The file has the settings of another module of sentence-transformers; loading it raises.",
    "Upload each module's `config.json` again, in the folder that `modules.json` names.",
    details="An upload without folders writes the modules' files of the same name over each other.",
)
ConfigContradiction = WarningKind(
    "config-contradiction",
    OfKeys,
    "The config declares one fact twice, with different values; the finding names the value used.",
    "Remove the key that is not meant; the other one stays.",
)
MetadataContradiction = ErrorKind(
    "config-contradiction",
    OfKeys,
    "The metadata of a GGUF file contradict each other or its tensors: llama.cpp stops there.",
    "Correct the value that the finding names, or load the file with `--override-kv`.",
)
GenerationConfigInvalid = WarningKind(
    "generation-config-invalid",
    OfKeys,
    "The generation config is one that transformers refuses to save.",
    "Remove the settings that the finding names, or set what they need (`do_sample`).",
)
UnknownConfigKey = WarningKind(
    "unknown-config-key",
    OfKeys,
    "No class of the model type reads the key, which is one typing error away from a known key.",
    "Correct the spelling; until then the default is used.",
)
CodeNotThere = ErrorKind(
    "code-not-there",
    OfKeys,
    "A module of code that auto_map names is not in the repository.",
    "Upload the module, or name the repository that has it: `org/name--module.Class`.",
)
ProcessorMissing = WarningKind(
    "processor-missing",
    OfKeys,
    "A model of images or audio comes without the processor that prepares them.",
    "Save the processor in the model's folder: `processor.save_pretrained`.",
)
ProcessorUnknown = ErrorKind(
    "processor-unknown",
    OfKeys,
    "A processor's config names a class that transformers does not have; loading it raises.",
    "Name the class that the finding names; the library renamed it, or never had it.",
    details="`AutoProcessor` returns the tokenizer alone if it does not find the class of the "
    "processor.",
)
HubCount = WarningKind(
    "hub-count",
    OfCount,
    "The Hub states a number of parameters that these files do not have; programs rely on it.",
    "Upload the weights again, which makes the Hub count anew.",
    details="The number is neither that of the parameters nor that of the stored elements: it "
    "comes from another upload, or was edited.",
)
ClaimedSize = InfoKind(
    "claimed-size",
    OfCount,
    "A published size is not the model's: in its name, its card, or the Hub's packed count.",
    "Correct the name or the card (`audit claim` prints what the number counts); for packed "
    "weights, state the true number in the card.",
    details="The Hub counts stored elements: in weights packed by GPTQ or AWQ, one element "
    "contains eight parameters.",
)
EngineRefuses = ErrorKind(
    "engine-refuses",
    OfEngine,
    "An engine that was asked for with `--for` does not load the checkpoint.",
    "Change what the reason names: `audit fix --for ENGINE` lists config keys that would help, and "
    "packed weights can be unpacked. Otherwise serve the checkpoint with another engine.",
)
EqualsBase = WarningKind(
    "equals-base",
    OfFiles,
    "All weight files are, byte for byte, those of the model that this one is made from.",
    "Upload what was trained or merged, if there is anything: this is the base itself.",
    details="Their sha256 are equal, which cannot happen by chance. If listings state the sha256, "
    "no weight is read. A copy that was published again on purpose has this finding too.",
)
NotFinite = ErrorKind(
    "not-finite",
    OfValues,
    "Some numbers of a tensor are NaN or infinite.",
    "Do not use the model, whose output will be NaN; save it again from a checkpoint before the "
    "training diverged, or in a dtype with the range that its numbers need.",
    details="Each NaN or Inf among the numbers that were read is counted; no other bit pattern can "
    "be mistaken for one. Inf in a stored buffer is ignored: attention masks consist of it.",
)
AllZero = WarningKind(
    "all-zero",
    OfValues,
    "A matrix or norm is zero where no initializer leaves zeros, or all scales of a matrix are.",
    "Save the model again from where it was trained: a shard that was gathered too early, or a "
    "file that was written in part, leaves such zeros.",
    details="Every number was read, or a sample, which the reason then states: at least 1,024 "
    "numbers, and in a vocabulary not only its last rows. The finding is wrong if the class "
    "initializes such a matrix to zero and it was never trained. Gates and box heads that "
    "transformers initializes to zero are ignored, unless the same matrix of another layer is not "
    "zero; norms of classes that add 1 to them, unless a norm near them was trained. The finding "
    "of a sample is also wrong if the matrix is padded with complete rows of zeros at its end.",
)
NoOpAdapter = ErrorKind(
    "no-op-adapter",
    OfValues,
    "An adapter adds nothing to its base: all of its modules are as before training.",
    "Save the adapter again after its training; check that its parameters were trained at all.",
    details="One factor of each product is zero (lora_B, hada_w2_b, ...), or each IA3 vector is 1. "
    "A trained factor is exactly zero in every number only if it never got a gradient. If only a "
    "sample was read, which the reason then states, every sampled module (at least three) is "
    "untrained; the finding is wrong if only unsampled modules were trained.",
)
TiedCopyDiffers = ErrorKind(
    "tied-copy-differs",
    OfValues,
    "A tensor that the config ties to another one is stored with other values than that one.",
    "Set `tie_word_embeddings` to false, which keeps both. If they should be tied, find out which "
    "of the two was trained last, and save the model with it.",
    details="Both were compared at the same places, and one differing byte is enough, so the "
    "finding is right even if only a sample was read. Which of the two a program uses depends on "
    "the program.",
)
EqualDuplicate = InfoKind(
    "duplicate",
    OfCopies,
    "A parameter is stored twice, with the same bytes, all of which were compared.",
    "Write the files again, each tensor once: either copy may go, and nothing is lost.",
)
DifferingDuplicate = ErrorKind(
    "duplicate",
    OfCopies,
    "A tensor is stored in two files with different bytes, and the file list decides which loads.",
    "Find out which file belongs to this save, and write the files again with its tensors.",
)
HeadEqualsEmbedding = InfoKind(
    "head-equals-embedding",
    OfValues,
    "The config does not tie the output head to the embedding, and both have the same bytes.",
    "Set `tie_word_embeddings` to true and save the model again, which stores them once, if the "
    "head was tied in training. Otherwise nothing: loading uses both.",
)
FreshHead = WarningKind(
    "fresh-head",
    OfValues,
    "A head still has its initial values, although the body was trained.",
    "Fine-tune the head before you use what it computes, or save the model with the head that was "
    "trained.",
    details="The biases of the head are exactly 0. The mean and the standard deviation of its n "
    "weights are within four standard errors (r / sqrt(2 n) for the deviation) of a normal "
    "distribution around 0 with r = initializer_range. The norms of the body no longer have their "
    "initial values 1 and 0. After one step of training, no number of a bias is 0; so the finding "
    "is wrong for about one in 10,000 heads without a bias, and then only if the deviation of the "
    "body's own matrices is far from r.",
)
UntrainedRows = WarningKind(
    "untrained-rows",
    OfValues,
    "Rows of the embedding that belong to tokens of the tokenizer are zero, or all identical.",
    "Train the tokens before you use them, or remove them from the tokenizer.",
    details="The padding token's row is zero in sound models, so it is ignored, as are rows "
    "without a token. Two trained rows of D numbers are never identical in each bit.",
)
PaddedDtype = WarningKind(
    "padded-dtype",
    OfValues,
    "Numbers are stored in float32 whose lower 16 bits are all zero: bfloat16 in twice the space.",
    "Save the model in bfloat16: nothing is lost, and the files are half as large.",
    details="A tensor counts if all of its numbers are so, or a quarter of them. The finding needs "
    "at least 1,024 such numbers of many different values, and a tenth of all bytes.",
)
RepeatedLayers = InfoKind(
    "repeated-layers",
    OfValues,
    "Layers are copies of each other, byte for byte.",
    "Nothing, if the model was made so; else look for the layers that should be there.",
    details="All bytes of all their matrices were compared. A model that was made deeper by "
    "copying layers starts its training like this.",
)
AddedBiasZero = InfoKind(
    "added-bias-zero",
    OfStored,
    "A bias is stored that the architecture lacks, and each of its numbers is zero.",
    "Nothing: adding it changes nothing.",
)
AddedBiasNotZero = ErrorKind(
    "added-bias-zero",
    OfStored,
    "A bias that the architecture lacks is stored and is not zero: the output differs without it.",
    "Loading leaves the bias out. Use the class that the model was trained with, or turn the bias "
    "on in the config if there is a key for it.",
)
PartZero = WarningKind(
    "part-zero",
    OfValues,
    "Blocks of zero rows or columns fill a quarter of a matrix, or a quarter of scales is zero.",
    "Save the model again from where it was trained: a part that was not gathered, or a file that "
    "was written in part, leaves such zeros.",
    details="Each number of the matrix was read, or a sample of the scales. Rows and columns that "
    "weight decay drove to zero are scattered; here they are neighbours. Rows at the end of an "
    "embedding or a head do not count, because they may be padding.",
)
ConstantMatrix = WarningKind(
    "constant-matrix",
    OfValues,
    "A matrix consists of one number, or of one row, where training leaves numbers that differ.",
    "Save the model again from where it was trained; a matrix that was filled in for a missing one "
    "looks like this.",
    details="Each number was compared, or a sample of at least 256. Tensors that the class may "
    "initialize so (biases, positions, norms, gates) are ignored.",
)
Outlier = ErrorKind(
    "outlier",
    OfValues,
    "A number is 32,768 times larger than nine tenths of its tensor, and above 10,000.",
    "Compare the file with its digest (`--verify`) and save it again: a flipped bit of an exponent "
    "looks like this.",
    details="Trained matrices stay below a factor of 560. Buffers, masks and scales are ignored.",
)
Subnormal = WarningKind(
    "subnormal",
    OfValues,
    "A tenth of a matrix or more is subnormal (below 1e-38), beside numbers of ordinary magnitude.",
    "Save the model again from where it was trained: bytes of another dtype, or weights that decay "
    "drove to zero, look like this.",
    details="The numbers of dead channels may be subnormal, too: they fill whole rows or columns, "
    "or numbers of all magnitudes are beside them. F16 is not judged: small trained numbers are "
    "subnormal there.",
)
MislabeledDtype = ErrorKind(
    "mislabeled-dtype",
    OfValues,
    "The header says F16 and the bytes are BF16, or the reverse: every number is wrong.",
    "Write the other dtype into the header, or save the model again.",
    details="The magnitudes of a trained matrix spread over 1 to 4 binades (the standard deviation "
    "of log2 |x|). Bytes of the wrong 16-bit dtype spread over less than 0.5 or more than 7, and "
    "over 1 to 4 if they are read as the other dtype. Vectors are not judged, nor matrices with "
    "one sign.",
)
Untrained = WarningKind(
    "untrained",
    OfValues,
    "A layer, an expert or the complete model has the values that the initializer left.",
    "Train it, or save the model again if it was trained: a layer whose weights were not loaded is "
    "left like this.",
    details="The norms of the layer are 1 (or 0, where the class adds 1) and its biases 0. In each "
    "matrix the numbers are independent draws: mean, kurtosis, and the means and deviations of "
    "rows and columns are within five standard errors. An expert has no norms: its deviation is "
    "that of the initializer, and most experts of its layer have another one.",
)
CopiedModules = WarningKind(
    "copied-modules",
    OfValues,
    "Some matrices of a layer are copies of those of another layer, byte for byte.",
    "Look for the module that should be there; keep it if the two layers share it on purpose.",
    details="All bytes of at least two matrices were compared, and most other matrices of the two "
    "layers are not correlated: a layer that was copied whole and then tuned in part is not a "
    "fault. The finding names both layers, because their bytes do not show which of them is the "
    "copy.",
)
MeanRows = InfoKind(
    "mean-rows",
    OfValues,
    "The last rows of the embedding are the mean of the other rows: added, not trained since.",
    "Nothing, if the tokens will still be trained; otherwise train them before you use them.",
    details="`resize_token_embeddings` of transformers leaves rows like this (`mean_resizing`, its "
    "default): the mean, plus noise of 3e-5 standard deviations.",
)
IdleModules = WarningKind(
    "idle-modules",
    OfValues,
    "Three tenths of an adapter's modules or more add nothing, and the others were trained.",
    "Save the adapter again after its training; check which parameters the optimizer had.",
    details="One factor of each product is zero, which it is only before its first gradient. The "
    "modules of one tower that is not used in training may all be idle: then there is no finding.",
)

FINDING_KINDS: tuple[FindingKind[..., Finding], ...] = tuple(
    value for value in vars().values() if isinstance(value, FindingKind)
)
