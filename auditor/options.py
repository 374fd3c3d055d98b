"""The options of all commands in one table, and AuditRequest: the options of one audit.

An option is a parameter of a command's function, or a field of a Struct that the function takes
(AuditRequest, or a table of a sweep.toml), and a row of OPTIONS. The command line
(`auditor/cli/parameters.py`) and its help follow from them.
"""

from collections.abc import Mapping
from enum import StrEnum
from types import MappingProxyType
from typing import Literal, NamedTuple

from msgspec import Struct

from auditor.findings.ignore import Ignore
from auditor.tensors import Depth

Source = Literal["hub", "cache", "bundled", "auto"]
TextFormat = Literal["terminal", "json"]


class FailOn(StrEnum):
    """The lowest severity that makes the exit code 1."""

    ERROR = "error"
    WARNING = "warning"
    NEVER = "never"


class AuditRequest(Struct, frozen=True, kw_only=True):
    """A checkpoint and the options of its audit, with the names of the command's options."""

    model: str  # a Hub id (with @revision), an address, a folder, a file or a snapshot
    target: str | None = None  # the class to audit for; None: what the checkpoint declares
    source: Source = "hub"  # where a Hub id is looked up: hub, cache, bundled, auto
    token: str | None = None  # a Hugging Face access token; None: the stored one
    depth: int | Depth | None = None  # levels of the report's module rows; None: all
    ignore: tuple[Ignore, ...] = ()  # findings that are left out of the verdict
    engines: tuple[str, ...] = ()  # whom to ask: vllm, mlx, llama.cpp, transformers==5.0.0
    oracle: bool = False  # also compare the closed form with what transformers builds
    kv_cache: bool = False  # let transformers fill the KV cache of a class without a closed form
    # Also compare safetensors with their torch copies on the Hub; in a folder this is always done.
    torch_copies: bool = False
    variant: str | None = None  # the weights that from_pretrained loads with variant="fp16"
    companions: bool = True  # read tokenizer, generation config, chat template and processor
    values: bool = False  # read all numbers of local files, a sample of those on the Hub
    statistics: bool = False  # with values: mean, std and more for each tensor
    values_budget: str | None = None  # the most requests and bytes of a sample, as "8,600kB"
    # A model to compare with: its weight files by sha256, and its numbers if `values` is set.
    base: str | None = None
    verify: bool = False  # compare the sha256 of local files with what their repository lists
    verify_against: str | None = None  # a Hub model or a snapshot whose list is used instead
    # Read the sha256 of local files and the front matter of README.md, for a bill of materials.
    materials: bool = False
    config: str | None = None  # a file, a folder or a model whose config replaces the model's own

    @property
    def reads_values(self) -> bool:
        """Whether an option requires that the checkpoint's numbers are read."""
        return self.values or self.statistics or self.values_budget is not None


GENERAL = "Options"
RARE = "More options"
_CHECKS, _PRINTS = "What to check", "What to print"


class Option(NamedTuple):
    """An option or a positional argument on the command line."""

    # `{choices}` in it stands for the choices of the parameter's type.
    help: str
    metavar: str = ""  # "": the choices, N for a number, TEXT
    flag: str = ""  # "": the parameter's name
    short: str = ""  # a second flag: -q
    default: str = ""  # the default as the help shows it
    group: str = GENERAL  # the heading of the help under which it stands
    least: int | None = None  # the smallest number
    is_counted: bool = False  # whether its value is how often it is given


# The key is the parameter's name, after the command's if the option of this command is another one.
# Fields of a Struct become options in the order of this table, if they have a row.
OPTIONS: Mapping[str, Option] = MappingProxyType(
    {
        # several commands
        "model": Option("As for audit MODEL.", "MODEL"),
        "models": Option("As for audit MODEL.", "MODEL"),
        "folder": Option("A checkpoint's folder on this machine.", "FOLDER"),
        "target": Option("The class that loads the model.", "CLASS", "--as"),
        "output": Option("The file to write.", "FILE", short="-o"),
        "settings": Option("Another value in the config.", "KEY=VALUE", "--set"),
        "verbose": Option(
            "Complete reports, all names; -vv: each request.", short="-v", is_counted=True
        ),
        "quiet": Option("Print errors only.", short="-q"),
        "fail_on": Option("What exits with 1: error, warning (default), never.", "SEVERITY"),
        # check
        "check models": Option("Hub ids, addresses, folders, files; - for stdin.", "MODEL"),
        "check form": Option("{choices}.", "FORMAT", "--format", group=_PRINTS),
        "check output": Option(
            "The file to write; its ending is the format.", "PATH", short="-o", group=_PRINTS
        ),
        "check tensors": Option("List each tensor, stored and expected.", group=RARE),
        "check depth": Option(
            "Levels of the module rows.", default="2; json, csv: all", group=RARE, least=0
        ),
        "ignore": Option("Leave findings of this kind out of the verdict.", "KIND[:GLOB]"),
        "check engines": Option(
            "Say whether vllm, mlx, transformers==5.0.0 load it.",
            "ENGINES",
            "--for",
            group=_CHECKS,
        ),
        "oracle": Option(
            "Also compare the closed form with transformers; needs torch, transformers.", group=RARE
        ),
        "torch_copies": Option(
            "Compare safetensors with their copies in torch files on the Hub, too.", group=RARE
        ),
        "variant": Option(
            "Audit this variant of the weights: fp16 for model.fp16.safetensors.",
            "NAME",
            group=RARE,
        ),
        "check companions": Option(
            "Leave out tokenizer, generation config, chat template and processor.",
            flag="--no-companions",
            group=RARE,
        ),
        "values": Option("Read numbers, too: NaN, zeros; needs numpy.", group=_CHECKS),
        "statistics": Option("With --values: mean, std and more of each tensor.", group=RARE),
        "values_budget": Option(
            "The most requests and bytes of a sample on the Hub.",
            "N,SIZE",
            default="8,600kB",
            group=RARE,
        ),
        "base": Option(
            "Name the weight files that are identical to those of this model, by sha256.",
            "MODEL",
            group=RARE,
        ),
        "verify": Option("Compare the sha256 of files with the listed ones.", group=_CHECKS),
        "verify_against": Option(
            "Compare them with those of a Hub model (with @revision) or a snapshot.",
            "MODEL",
            group=RARE,
        ),
        "config": Option("Use this config: a file, a folder or a model.", "FILE", group=RARE),
        "source": Option("hub (default), cache, bundled, or auto: all three.", "PLACE"),
        "token": Option("Access token, if not stored.", group=RARE),
        "check quiet": Option("Print errors only; for many models, the table.", short="-q"),
        # doctor, explain, explain-finding, architectures
        "headers": Option("Do not read the numbers of local files."),
        "explain depth": Option("Levels of the tree.", default="all levels", least=0),
        "symbolic": Option("Formulas without values."),
        "latex": Option("For a paper: an align* block."),
        "explain tensors": Option("Each tensor: name, shape, parameters."),
        "kinds": Option("Attention, feed forward, ...: one layer and all."),
        "classes": Option("The classes of the family side by side."),
        "keys": Option("The keys of the config that change the count."),
        "explain form": Option(
            "For such tables: markdown, csv, json; for the tree: json, svg.",
            flag="--format",
            default="terminal",
        ),
        "text": Option("What the loader printed; - for standard input.", "TEXT"),
        "names": Option(
            "As reports name them: missing, wrapper-prefix. Without one: all, a line each.",
            "[KIND|CAUSE]...",
        ),
        "markdown": Option("As the table of the README."),
        # fix
        "apply": Option("Write the fixed folder, FOLDER.fixed."),
        "to": Option("The fixed folder; it must not exist.", "DIR"),
        "link": Option("Make unchanged files hard links, which take no space."),
        "fix engines": Option(
            "Also add config keys that vllm, mlx, llama.cpp or transformers==VERSION read.",
            "ENGINES",
            "--for",
        ),
        "allow": Option("A change to make although files do not decide it: {choices}.", "CHANGE"),
        "fix form": Option("How to print the plan.", flag="--format"),
        # memory
        "dtypes": Option(
            "Weights in fp32, bf16, int8, 4bit (the default: all), F8_E4M3.", "DTYPE", "--dtype"
        ),
        "context": Option("Tokens that the cache holds.", least=1),
        "batch": Option("Sequences at a time.", default="1", least=1),
        "concurrency": Option("Sequences at a time in vLLM's paged cache; not --batch.", least=1),
        "gpu": Option("Does it fit? A card, such as 'RTX 4090', or its memory: 24GB.", "CARD"),
        "cache_dtype": Option("The cache in this dtype, not in that of the weights.", "DTYPE"),
        "memory form": Option("Text, or a JSON object.", flag="--format"),
        # claim
        "claims": Option(
            "109482240, 110M, 30B-A3B, '72.1 MB', 3.8亿, or a formula: 'V*D + L*D'.", "COUNT"
        ),
        "part": Option(
            "For a module prefix, or embeddings, encoder, 'one layer attention', 注意力.",
            "PART=COUNT",
        ),
        "file": Option("A CSV: columns model, part, claim."),
        "claim form": Option(
            "Text, or a JSON object for each claim.", flag="--format", default="terminal"
        ),
        # diff, snapshot
        "first": Option("As for audit MODEL.", "A"),
        "second": Option("Likewise.", "B"),
        "diff values": Option(
            "Sample the numbers of both, unpacked, and say how far they are apart; needs numpy."
        ),
        "diff form": Option(
            "terminal, markdown, csv or json.", flag="--format", default="terminal"
        ),
        "snapshot output": Option(
            "The file to write; a name that ends in .gz is compressed.", "FILE", short="-o"
        ),
        # push, comment
        "push repository": Option("A repository; it is made if needed.", "ORG/NAME"),
        "revision": Option("A branch that exists.", "BRANCH", default="main"),
        "create_pr": Option("Open a pull request with the commit."),
        "private": Option("Make a private repository; send nothing to one that is public."),
        "push fail_on": Option(
            "The lowest severity that stops the push: error, warning, or never, which also sends "
            "what could not be audited.",
            "SEVERITY",
            default="error",
        ),
        "push dry_run": Option("Audit, list what would be sent, and send nothing."),
        "comment repository": Option("A repository of the Hub.", "ORG/NAME"),
        "number": Option("The number of the pull request or the discussion.", "N", "--pr", least=1),
        "comment fail_on": Option(
            "The lowest severity that exits with 1: {choices}.", "SEVERITY", default="warning"
        ),
        "comment dry_run": Option("Print the report, and post nothing."),
        # attest, verify
        "attest key": Option(
            "Sign with this private key (PEM: ECDSA, Ed25519 or RSA); needs securesystemslib.",
            "FILE",
        ),
        "keyless": Option(
            "Sign with your identity by Sigstore, which logs it publicly; needs sigstore."
        ),
        "statement": Option("A file of audit attest.", "STATEMENT"),
        "verify model": Option(
            "What to compare it with; default: the commit that it states.", "[FOLDER|MODEL]"
        ),
        "verify key": Option("The reviewer's public key (PEM); needs securesystemslib.", "FILE"),
        "identity": Option(
            "Who signed without a key: an e-mail address or the address of a workflow.", "NAME"
        ),
        "issuer": Option(
            "Who vouches for that identity: https://accounts.google.com, for instance.", "URL"
        ),
        # sweep
        "sweep source": Option(
            "A sweep.toml, a file of ids (one a line), or - for ids on standard input.", "[SOURCE]"
        ),
        "author": Option("Models of this user or organisation."),
        "filter": Option("Models with this tag.", "TAG"),
        "library": Option("Models of this library.", group=RARE),
        "search": Option("Models with this in their id.", group=RARE),
        "top": Option("The most models, the first by --sort.", least=1),
        "sort": Option(
            "downloads, likes, lastModified.", default="downloads with --top", group=RARE
        ),
        "store": Option("The file of the outcomes.", "FILE", default="sweep.sqlite"),
        "keep": Option(
            "Finished nights to keep; a report of changes needs two.",
            default="all",
            group=RARE,
            least=1,
        ),
        "sweep night": Option("The name of the night.", default="today, UTC"),
        "max_requests": Option(
            "Requests in five minutes.", default="the Hub's RateLimit headers", group=RARE, least=1
        ),
        "processes": Option(
            "Processes that audit; more than one needs dask.", default="1", group=RARE, least=1
        ),
        "at_once": Option("Models under way in each process.", default="64", group=RARE, least=1),
        "deadline": Option(
            "Seconds of network for each model.", default="120", group=RARE, least=1
        ),
        "scheduler": Option(
            "A Dask cluster whose workers audit; needs dask.", "tcp://HOST:PORT", group=RARE
        ),
        "force": Option(
            "Sweep even if a selection is empty or has lost models; replace a finished night.",
            group=RARE,
        ),
        "plan": Option("Print how many requests it takes; only the Hub's lists are read."),
        # report, accept
        "report store": Option("The store of `audit sweep`.", "[STORE]", default="sweep.sqlite"),
        "report night": Option("The night to report: a date.", default="the latest"),
        "report output": Option(
            "The folder for CSV tables, summary.json and index.html.",
            "DIR",
            short="-o",
            default="reports/nightly/NIGHT",
        ),
        "report baseline": Option("Accepted findings, as TOML or JSON.", "FILE"),
        "sarif": Option("Write SARIF 2.1.0 for code-scanning pages.", "FILE"),
        "parquet": Option("Also write the tables as Parquet; needs pyarrow."),
        "report depth": Option("Levels of the module rows.", default="all levels", least=0),
        "accept store": Option(
            "The store of `audit sweep`, or the folder of sweep.sqlite.", "STORE"
        ),
        "accept model": Option("A model, or a glob: acme/*.", "MODEL"),
        "kind": Option("The kind of finding, or the reason of an unaudited model."),
        "by": Option("The reviewer who decides."),
        "reason": Option("The reason, as text."),
        "until": Option("The last night: 2027-03-31.", "DATE"),
        "name": Option("Accept findings whose tensors or files match.", "GLOB", default="*"),
        "accept baseline": Option(
            "TOML or JSON.", "FILE", default="baseline.toml beside the store"
        ),
    }
)
