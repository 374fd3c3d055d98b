"""AQLM, https://arxiv.org/abs/2401.06118: a weight is a sum of vectors from codebooks.

`aqlm.QuantizedLinear` saves, for vectors of og outputs by ig inputs and K codebooks of B bits:

    X.codes      I8 where B <= 8, I16 where B <= 16, I32: (out / og, in / ig, K)
    X.codebooks  float (K, 2^B, og, ig)
    X.scales     float (out / og, 1, 1, 1)

Together they are `X.weight` (out, in) = (rows of codes * og, columns of codes * ig).
"""

from collections.abc import Mapping

from auditor.layouts.declared import integer_setting
from auditor.layouts.packing import (
    FLOATS,
    Declared,
    Implied,
    Layout,
    LogicalTensor,
    Members,
    PackingLedger,
    Stored,
    Unpacked,
    WrittenTensor,
    tensor_name,
)
from auditor.tensors import DTYPE_BITS, StoredTensor

_PARTS = ("codes", "codebooks", "scales")
_DIMENSIONS = {"codes": 3, "codebooks": 4, "scales": 4}
_SIZES = range(1, 2**16 + 1)
_BITS = range(1, 65)
_MOST_BITS = 32  # of a code


def recognises(stored: Stored) -> bool:
    """Whether a module stores codes and codebooks."""
    return any("codes" in members and "codebooks" in members for members in stored.modules.values())


def unpack(stored: Stored, declared: Declared | None, _implied: Implied) -> Unpacked:
    """Unpack `X.codes` as `X.weight`."""
    ledger = PackingLedger()
    settings = _settings(declared, ledger)
    for module, members in stored.modules.items():
        if "codes" in members or "codebooks" in members:
            _unpack(module, members, settings, ledger)
    count, bits = settings.get("num_codebooks"), settings.get("nbits_per_codebook")
    return ledger.close(f"aqlm, {count}x{bits} bits" if count and bits else "aqlm")


def writes(stored: Stored, declared: Declared | None, implied: Implied) -> dict[str, WrittenTensor]:
    """Return dtypes and shapes for the sizes in the config, from which loading builds modules."""
    written: dict[str, WrittenTensor] = {}
    settings = _settings(declared, PackingLedger())
    keys = ("out_group_size", "in_group_size", "num_codebooks", "nbits_per_codebook")
    outputs, inputs, books, bits = (settings.get(key, 0) for key in keys)
    if not (outputs and inputs and books and 0 < bits <= _MOST_BITS):
        return written
    width = next(f"I{width}" for width in (8, 16, 32) if bits <= width)
    for module, members in stored.modules.items():
        shape = implied(tensor_name(module))
        if shape is None or len(shape) != 2 or "codes" not in members:  # noqa: PLR2004 - (out, in)
            continue
        rows, columns = shape[0] // outputs, shape[1] // inputs
        parts = {
            "codes": WrittenTensor((rows, columns, books), (width,)),
            "codebooks": WrittenTensor((books, 2**bits, outputs, inputs), FLOATS),
            "scales": WrittenTensor((rows, 1, 1, 1), FLOATS),
        }
        written |= {members[last].name: parts[last] for last in parts if last in members}
    return written


def _settings(declared: Declared | None, ledger: PackingLedger) -> Mapping[str, int]:
    if declared is None:
        return {}
    allowed = dict.fromkeys(("in_group_size", "out_group_size", "num_codebooks"), _SIZES)
    allowed["nbits_per_codebook"] = _BITS
    values_by_key = {
        key: integer_setting(declared, key, values, ledger) for key, values in allowed.items()
    }
    return {key: value for key, value in values_by_key.items() if value is not None}


def _unpack(
    module: str,
    members: Members,
    settings: Mapping[str, int],
    ledger: PackingLedger,
) -> None:
    codes, codebooks, scales = map(members.get, _PARTS)
    there = [tensor for tensor in (codes, codebooks, scales) if tensor is not None]
    if codebooks is not None:
        ledger.note("codebooks, the vectors that codes stand for", codebooks)
    if scales is not None:
        ledger.note("scales, one for each row of codes", scales)
    lacking = [part for part in _PARTS if part not in members]
    if lacking:
        ledger.lack(f"packed by aqlm, and {' and '.join(lacking)} not stored", *there)
    if codes is None:
        return
    name = tensor_name(module)
    if codebooks is None or codes.shape is None or codebooks.shape is None:
        if codebooks is not None:
            ledger.tensors.append(LogicalTensor(codes, name, None, "AQLM"))
        return
    if not all(_has_dimensions(part, members, ledger) for part in _PARTS):
        return
    (rows, columns, _), (_, _, outputs, inputs) = codes.shape, codebooks.shape
    ledger.tensors.append(LogicalTensor(codes, name, (rows * outputs, columns * inputs), "AQLM"))
    _check(codes, codebooks, scales, ledger)
    _check_settings(codebooks, settings, ledger)


def _has_dimensions(part: str, members: Members, ledger: PackingLedger) -> bool:
    tensor = members.get(part)
    if tensor is None or tensor.shape is None or len(tensor.shape) == _DIMENSIONS[part]:
        return True
    ledger.fault(f"{part} of aqlm is {tensor.shape}, not of {_DIMENSIONS[part]} dimensions", tensor)
    return False


def _check(
    codes: StoredTensor, codebooks: StoredTensor, scales: StoredTensor | None, ledger: PackingLedger
) -> None:
    rows, _, count = codes.shape or ()
    books, size, *_ = codebooks.shape or ()
    if count != books:
        observed = f"codes {codes.shape} name {count:,} codebooks, there are {codebooks.shape}"
        ledger.fault(f"{observed}: {books:,}", codes, codebooks)
    width = DTYPE_BITS.get(codes.dtype or "", 0)
    if size < 1 or size & (size - 1) or size.bit_length() - 1 > width:
        observed = f"codebooks {codebooks.shape} are of {size:,} vectors"
        ledger.fault(
            f"{observed}; {codes.dtype} codes need a power of two up to 2^{width}", codebooks
        )
    if scales is not None and scales.shape not in {None, (rows, 1, 1, 1)}:
        observed = f"scales {scales.shape} beside codes {codes.shape}"
        ledger.fault(f"{observed}: ({rows:,}, 1, 1, 1) is needed", scales)


def _check_settings(
    codebooks: StoredTensor, settings: Mapping[str, int], ledger: PackingLedger
) -> None:
    """Report codebooks of another shape than the settings give, which loading refuses."""
    count, size, outputs, inputs = codebooks.shape or ()
    declared = {
        "num_codebooks": count,
        "nbits_per_codebook": size.bit_length() - 1,
        "out_group_size": outputs,
        "in_group_size": inputs,
    }
    for key, stored in declared.items():
        if key in settings and settings[key] != stored:
            observed = f"codebooks {codebooks.shape} mean a {key} of {stored:,}"
            ledger.fault(f"{observed}, the config says {settings[key]:,}", codebooks)


LAYOUT = Layout(name="aqlm", methods=("aqlm",), recognises=recognises, unpack=unpack, writes=writes)
