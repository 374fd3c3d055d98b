"""The kind of a module, such as attention or experts, from the roles of the tensors inside it."""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from collections.abc import Set as AbstractSet

from auditor.tensor_roles import role_of

SEVERAL, OTHER, NORMS, EXPERTS = "several", "other", "norms", "experts"
KINDS = (
    *("attention", "feed-forward", EXPERTS, "embeddings", NORMS, "head", OTHER),
    SEVERAL,  # modules of several kinds are inside, such as a layer
)
_ATTENTION = {"q", "k", "v", "o", "qkv", "q-a", "q-b", "kv-a", "kv-b", "bias-of-positions"}
_KIND_BY_PART: Mapping[str, str] = {
    **dict.fromkeys(_ATTENTION, "attention"),
    **dict.fromkeys((f"cross-{part}" for part in _ATTENTION), "attention"),
    **dict.fromkeys(("gate", "up", "gate-up", "down"), "feed-forward"),
    **dict.fromkeys(("shared-gate", "shared-up", "shared-down"), "feed-forward"),
    **dict.fromkeys(("expert-gate", "expert-up", "expert-gate-up", "expert-down"), EXPERTS),
    **dict.fromkeys(("all-gates", "all-ups", "all-downs"), EXPERTS),
    **dict.fromkeys(("tokens", "positions", "type-embeddings", "patches"), "embeddings"),
    **dict.fromkeys(("mask-token", "class-token"), "embeddings"),
    **dict.fromkeys(("head", "mlm-dense", "mlm-bias"), "head"),
}


def kinds_of(prefixes: Iterable[str]) -> Mapping[str, str]:
    """Map each module prefix to its kind.

    Norms, routers and modules of unknown roles do not change the kind of the module above them.
    """
    inside: dict[str, set[str]] = defaultdict(set)
    deepest_first = sorted(prefixes, key=lambda name: -name.count(".") if name else 1)
    for prefix in deepest_first:
        if not inside[prefix]:
            inside[prefix].add(kind := _kind_of_leaf(prefix))
            above = prefix
            while above:
                above = above.rpartition(".")[0]
                inside[above].add(kind)
    return {prefix: _summary(inside[prefix]) for prefix in deepest_first}


def _kind_of_leaf(prefix: str) -> str:
    role = role_of(f"{prefix}.weight")
    if role is None:
        return OTHER
    is_norm = "norm" in role.part.split("-")
    return NORMS if is_norm else _KIND_BY_PART.get(role.part, OTHER)


def _summary(kinds: AbstractSet[str]) -> str:
    main = kinds - {NORMS, OTHER}
    if len(main) > 1:
        return SEVERAL
    return next(iter(main or kinds - {OTHER} or kinds))
