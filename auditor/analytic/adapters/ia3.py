"""IA3, https://arxiv.org/abs/2205.05638: a vector beside a layer, for its outputs or inputs."""

from collections.abc import Iterator

from auditor.analytic.adapters.base import AdaptedModel
from auditor.analytic.adapters.patterns import UnsafeError
from auditor.analytic.adapters.saved_modules import BELOW, expected_tensor
from auditor.analytic.adapters.settings import AdapterSettings, ModuleNames, unchecked_adapter
from auditor.analytic.adapters.targets import Targets
from auditor.analytic.blocks import Layer
from auditor.analytic.expectation import ExpectedTensor
from auditor.messages import quoted


def ia3(settings: AdapterSettings, base: AdaptedModel) -> Iterator[ExpectedTensor]:
    """`ia3_l` of (1, in) for a feed-forward module, of (out, 1) for any other."""
    forward = _feed_forward(settings, base)
    for part in Targets(settings, base).parts:
        size = part.size()
        if size is None or part.layer is Layer.EMBEDDING:
            raise unchecked_adapter(f"target_modules chooses {quoted(part.path)}: no linear layer")
        name, inward = f"{BELOW}{part.path}.ia3_l", part.path in forward
        width = size.inputs if inward else size.outputs
        if size.kernel:
            yield expected_tensor(name, 1, width, *(1 for _ in size.kernel))
        else:
            yield expected_tensor(name, *((1, width) if inward else (width, 1)))


def _feed_forward(settings: AdapterSettings, base: AdaptedModel) -> frozenset[str]:
    names = settings.names("feedforward_modules") or ModuleNames(ends=frozenset())
    if names.ends is not None:
        # Unlike targets, peft takes these as ends of the name without a dot before them.
        ends = tuple(names.ends)
        return frozenset(path for path in base.paths if ends and path.endswith(ends))
    if names.expression is None:
        raise unchecked_adapter("feedforward_modules is all-linear, which says no modules")
    try:
        return names.expression.matching(base.paths)
    except UnsafeError as error:
        raise unchecked_adapter(f"feedforward_modules is an expression not run: {error}") from None
