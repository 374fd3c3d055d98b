"""The choice of companion files to read, the parts that are read, and the parts that are kept.

Small files are kept byte for byte. A vocabulary, which may have 40 MB, is reduced to its ids.
"""

import re
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from functools import partial
from typing import NamedTuple

from auditor.bounded.json_text import JsonFile
from auditor.errors import CheckpointError
from auditor.names.parts import file_name, folder_of
from auditor.tensors import Span

TOKENIZER = "tokenizer.json"
TOKENIZER_CONFIG = "tokenizer_config.json"
GENERATION = "generation_config.json"
TEMPLATE = "chat_template.jinja"
OLDER_TEMPLATE = "chat_template.json"
_MORE_TEMPLATES = re.compile(r"additional_chat_templates/([^/]+)\.jinja")
ADDED = "added_tokens.json"
SPECIAL = "special_tokens_map.json"
TEKKEN = "tekken.json"
TRAINER_STATE = "trainer_state.json"  # of transformers' Trainer
LATEST = "latest"  # names DeepSpeed's folder of the last step
PROCESSOR = "processor_config.json"
# The settings of a processor of images or audio: one of these files is enough.
PROCESSORS = ("preprocessor_config.json", PROCESSOR, "video_preprocessor_config.json")

# The most informative first; only the first few are read from the Hub.
_TEXTS = (GENERATION, TEMPLATE, TOKENIZER_CONFIG, ADDED, SPECIAL, OLDER_TEMPLATE, *PROCESSORS)
# The name depends on the tokenizer's class; some contain tiktoken's ranks.
_SENTENCEPIECE = (
    "tokenizer.model",
    "spiece.model",
    "sentencepiece.bpe.model",
    "sentencepiece.model",
    "spm.model",
    "spm_char.model",
    "tiktoken.model",
)
# Files of tokenizers from fairseq, whose ids are the positions of the pieces plus an offset.
OFFSET_PIECES = frozenset(("sentencepiece.bpe.model",))
_OTHER_VOCABULARIES = (TEKKEN, *_SENTENCEPIECE, "vocab.json", "vocab.txt")
# If one of these exists, the positions of sentencepiece's pieces are not ids: these files contain
# the ids (M2M100, BERT for Japanese; fairseq's dictionary in BARTpho).
_ID_FILES = frozenset(("vocab.json", "vocab.txt", "dict.txt"))
_OF_MODULES = re.compile(r"[^/]*(Pooling/config|StaticEmbedding/tokenizer)\.json")
# The folders of a pipeline's tokenizers; text_encoder_2 has tokenizer_2.
_TOKENIZER_FOLDER = re.compile(r"tokenizer(_\d)?/")
_TIKTOKEN = ".tiktoken"

# Bytes of a text: tokenizer_config.json of Gemma 3, with 6,415 added tokens, has 1.2 MB.
MAX_TEXT = 4 * 1024 * 1024
# Bytes of a vocabulary that is read completely; tokenizer.json of Gemma 3 has 33 MB.
MAX_VOCABULARY = 40 * 1024 * 1024
# A repository has one tokenizer, in two or three formats.
_MOST_VOCABULARIES = 2
# Bytes of other files in folders; the settings of a Pooling have 200.
_MAX_MODULE = 64 * 1024
# Bytes that are read at the start and at the end of a longer vocabulary.
START, END = 192 * 1024, 4 * 1024
# Bytes at the start of a tekken.json or trainer_state.json, which contain the settings.
_SETTINGS = 16 * 1024


class CompanionFile(JsonFile, frozen=True, order=True):
    """A companion file with the part of its content that was read; of a vocabulary, a summary."""

    unread: str = ""  # why it was not read


class CompanionBounds(NamedTuple):
    """The most requests and bytes that the companion files of one model may take."""

    requests: int
    bytes: int


# The bounds of one audit of a Hub model, in addition to config, index and shards.
OF_HUB = CompanionBounds(3, 512 * 1024)


# The bounds for the files of a local folder, several of which are in memory at once: all of
# Gemma 3's files have 39 MiB.
_FOLDER_BOUNDS = CompanionBounds(32, 48 * 1024 * 1024)


class PlannedRead(NamedTuple):
    """The parts of one file that are to be read; no parts if the file is too long."""

    name: str
    spans: tuple[Span, ...]
    is_complete: bool = True
    unread: str = ""


def companions_of(names: Collection[str]) -> tuple[str, ...]:
    """Return the companion files of a listing, the most useful first."""
    ranked = sorted(name for name in names if name.endswith(_TIKTOKEN) and "/" not in name)
    candidates = (TOKENIZER, *_OTHER_VOCABULARIES, *ranked)
    without_ids = () if _ID_FILES.isdisjoint(names) else _SENTENCEPIECE
    vocabularies = [name for name in candidates if name in names and name not in without_ids]
    texts = [name for name in _TEXTS if name in names]
    nested = sorted(name for name in names if template_name(name) or _OF_MODULES.fullmatch(name))
    return (*vocabularies[:1], *texts, *nested, *vocabularies[1:])


def tokenizers_of(names: Iterable[str]) -> tuple[str, ...]:
    """Return the tokenizers' files of a pipeline; the best file of each folder comes first."""
    by_folder: dict[str, list[str]] = {}
    for name in sorted(names):
        if _TOKENIZER_FOLDER.fullmatch(folder := folder_of(name)):
            by_folder.setdefault(folder, []).append(file_name(name))
    ranked = [
        (rank, folder + name)
        for folder, files in by_folder.items()
        for rank, name in enumerate(companions_of(files))
        if is_vocabulary(name) or name in {TOKENIZER_CONFIG, SPECIAL}
    ]
    return tuple(name for _, name in sorted(ranked))


def template_name(file: str) -> str | None:
    """Return the name of a file's template, "" for the default; None for any other file."""
    if file == TEMPLATE:
        return ""
    match = _MORE_TEMPLATES.fullmatch(file)
    return match[1] if match else None


def is_vocabulary(name: str) -> bool:
    """Return whether a summary of the file is kept instead of its bytes."""
    last = file_name(name)
    return last in {TOKENIZER, ADDED, *_OTHER_VOCABULARIES} or last.endswith(_TIKTOKEN)


def planned(
    names: Iterable[str], sizes: Mapping[str, int | None], bounds: CompanionBounds | None
) -> Iterator[PlannedRead]:
    """Yield the parts of each file to read, within `bounds`, which are None for a folder."""
    budget = bounds or _FOLDER_BOUNDS
    cut_plans: list[PlannedRead] = []
    vocabularies = Counter[str]()  # by folder
    for name in names:
        size, folder, last = sizes.get(name), folder_of(name), file_name(name)
        most = MAX_TEXT if last in _TEXTS else _MAX_MODULE
        most = MAX_VOCABULARY if is_vocabulary(name) else most
        plan = _plan_for(name, size, min(most, budget.bytes, START if bounds and size else most))
        vocabularies[folder] += is_vocabulary(name) and last != ADDED and bool(plan.spans)
        if vocabularies[folder] > _MOST_VOCABULARIES:
            plan = PlannedRead(name, (), unread="other vocabularies were read instead of it")
        byte_count = sum(span.stop - span.start for span in plan.spans)
        if plan.spans and (budget.requests < 1 or byte_count > budget.bytes):
            plan = PlannedRead(name, (), unread="other files were read instead of it")
            byte_count = 0
        budget = CompanionBounds(budget.requests - bool(byte_count), budget.bytes - byte_count)
        if last == TOKENIZER and not plan.is_complete:
            cut_plans.append(plan)
        else:
            yield plan
    for plan in cut_plans:  # the file's end, if the budget has a request left
        size = sizes.get(plan.name) or 0
        end = (Span(size - END, size),) if budget.requests > 0 and budget.bytes >= END else ()
        yield plan._replace(spans=(*plan.spans, *end))


def _plan_for(name: str, size: int | None, most: int) -> PlannedRead:
    if file_name(name) in {TEKKEN, TRAINER_STATE}:  # the step is before the history of losses
        return PlannedRead(name, (Span(0, min(_SETTINGS, size or _SETTINGS)),))
    if not size:
        unread = "its size is not known" if size is None else "it is empty"
        return PlannedRead(name, (), unread=unread)
    if size <= most:
        return PlannedRead(name, (Span(0, size),))
    if file_name(name) == TOKENIZER and most >= START:
        return PlannedRead(name, (Span(0, START),), is_complete=False)
    return PlannedRead(name, (), unread=f"it has {size:,} bytes, expected at most {most:,}")


def read_companion(
    plan: PlannedRead, read: Callable[[Span], bytes], tokens: Collection[str] = ()
) -> CompanionFile:
    """Read a file's planned parts with `read`, and look up `tokens` in a vocabulary."""
    if not plan.spans:
        return CompanionFile(plan.name, None, plan.unread)
    first, *later_spans = plan.spans
    start, end = read(first), b"".join(map(read, later_spans))
    if not is_vocabulary(plan.name):
        return CompanionFile(plan.name, start)
    return summary(plan.name, start, end, is_complete=plan.is_complete, tokens=tokens)


def import_readers() -> None:
    """Import the vocabulary readers (15 ms); callers do this while they wait for the network."""
    from auditor.companions import vocabulary_files  # noqa: F401, PLC0415


def has_template(file: CompanionFile) -> bool:
    """Return whether the file may contain a chat template."""
    return template_name(file.name) is not None or b'"chat_template"' in (file.content or b"")


def summary(
    name: str,
    start: bytes,
    end: bytes = b"",
    *,
    is_complete: bool = True,
    tokens: Collection[str] = (),
) -> CompanionFile:
    """Return a vocabulary file with a summary of its ids as content; look up `tokens` in it."""
    from auditor.companions import vocabulary_files  # noqa: PLC0415 - few models have such a file
    from auditor.companions.vocabulary import Vocabulary, summary_json  # noqa: PLC0415 - as above

    readers: dict[str, Callable[[bytes], Vocabulary]] = {
        TOKENIZER: partial(
            vocabulary_files.read_tokenizer, end=end, is_complete=is_complete, tokens=tokens
        ),
        ADDED: vocabulary_files.added_object,
        TEKKEN: vocabulary_files.tekken,
        "vocab.json": partial(vocabulary_files.token_object, tokens=tokens),
        "vocab.txt": partial(vocabulary_files.token_lines, tokens=tokens),
        **dict.fromkeys(_SENTENCEPIECE, partial(vocabulary_files.sentencepiece, tokens=tokens)),
    }
    try:
        vocabulary = readers.get(file_name(name), vocabulary_files.tiktoken)(start)
    except CheckpointError as error:
        return CompanionFile(name, None, str(error))
    return CompanionFile(name, summary_json(vocabulary))
