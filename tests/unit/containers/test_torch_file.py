"""Files of torch.save, held to torch's own loader."""

import io
import pickle
import re
import warnings
import zipfile
from collections import OrderedDict
from math import prod

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.torch_files import (
    legacy_bytes,
    parsed,
    pickled,
    read,
    state,
    tensor,
    text,
    torch_bytes,
    zipped,
)

from auditor.containers.weight_formats import UnsafeFileError
from auditor.errors import CheckpointError

torch = pytest.importorskip("torch", reason="the oracle of these files")
safetensors_torch = pytest.importorskip("safetensors.torch")

pytestmark = pytest.mark.oracle

NAMED = {dtype: name for name, dtype in safetensors_torch._TYPES.items()}  # noqa: SLF001 - the library's own table
DTYPES = sorted(NAMED, key=str)
FORMS = [
    {"pickle_protocol": protocol, "_use_new_zipfile_serialization": is_zip}
    for protocol in (2, 5)
    for is_zip in (True, False)
]
SAVES = st.fixed_dictionaries(
    {
        "pickle_protocol": st.integers(2, 5),
        "_use_new_zipfile_serialization": st.booleans(),
    }
)
NAMES = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=12)
SHAPES = st.lists(st.integers(0, 4), max_size=3)


def saved(value, **form) -> bytes:
    out = io.BytesIO()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of torch's own deprecated parts
        torch.save(value, out, **form)
    return out.getvalue()


def filled(shape, dtype):
    """A tensor of numbers that differ, as far as the dtype can tell them apart."""
    count = prod(shape)
    if dtype is torch.bool:
        return (torch.arange(count) % 2 == 0).reshape(shape)
    width = torch.empty((), dtype=dtype).element_size()
    octets = (torch.arange(count * width) % 100 + 1).to(torch.uint8)
    return octets.view(dtype).reshape(shape) if count else torch.empty(shape, dtype=dtype)


@st.composite
def state_dicts(draw):
    """Tensors of every dtype: whole, parameters, views, transposed, tied, empty, scalars."""
    found = OrderedDict()
    for name in draw(st.lists(NAMES, max_size=5, unique=True)):
        one = filled(draw(SHAPES), draw(st.sampled_from(DTYPES)))
        how = draw(st.sampled_from(["whole", "whole", "view", "turned", "parameter", "tied"]))
        if how == "view" and one.ndim:
            one = one[one.shape[0] // 2 :]
        elif how == "turned" and one.ndim > 1:
            one = one.transpose(0, 1)
        elif how == "parameter":
            one = torch.nn.Parameter(one, requires_grad=False)
        elif how == "tied" and found:
            one = draw(st.sampled_from(list(found.values())))
        found[name] = one
    return found


def bytes_of(one) -> bytes:
    flat = one.detach().contiguous().reshape(-1)
    return flat.view(torch.uint8).numpy().tobytes() if flat.numel() else b""


def whole_of(name, dtype, shape):
    """Names and shapes as safetensors has them: F4 packs two numbers to an element of torch."""
    packs = getattr(torch, "float4_e2m1fn_x2", None)
    if dtype is packs and shape:
        shape = (*shape[:-1], 2 * shape[-1])
    return name, "F4" if dtype is packs else NAMED[dtype], tuple(shape)


def loaded_by_torch(content):
    """What torch loads by default; None if it refuses the file."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of protocol 3
            return torch.load(io.BytesIO(content), weights_only=True)
    except (AttributeError, pickle.UnpicklingError):
        return None


@given(state_dicts(), SAVES)
def test_names_dtypes_and_shapes_are_those_that_torch_loads(held, form):
    """torch refuses protocol 4, and the newer dtypes in a legacy file: then there is a fault."""
    content = saved(held, **form)
    table = parsed(content)
    loaded = loaded_by_torch(content)
    observed = {(one.name, one.dtype, one.shape) for one in table.tensors}
    assert observed == {whole_of(name, one.dtype, one.shape) for name, one in held.items()}
    assert (table.size_faults, table.imports) == ((), ())
    assert bool(table.faults) == (loaded is None)
    assert loaded is None or loaded.keys() == held.keys()


@given(state_dicts(), SAVES)
def test_a_span_holds_the_tensors_own_bytes(held, form):
    content = saved(held, **form)
    for one in parsed(content).tensors:
        loaded = held[one.name]
        assert one.span.length == loaded.numel() * loaded.element_size()
        if loaded.is_contiguous():
            assert content[one.span.start : one.span.stop] == bytes_of(loaded)


@given(state_dicts(), SAVES)
def test_shared_are_those_that_hold_the_same_bytes(held, form):
    table = parsed(saved(held, **form))
    assert set(table.shared) | set(table.shared.values()) <= set(held)
    for name, of in table.shared.items():
        assert held[name].data_ptr() == held[of].data_ptr()
        assert held[name].numel() == held[of].numel() > 0
    counted = [one for name, one in held.items() if name not in table.shared and one.numel()]
    spans = [(one.data_ptr(), one.numel(), one.element_size()) for one in counted]
    whole = [one.is_contiguous() for one in counted]
    assert len(set(spans)) == len(spans) or not all(whole)


@given(state_dicts(), SAVES, st.data())
def test_a_truncated_file_is_reported(held, form, data):
    content = saved(held, **form)
    stop = data.draw(st.integers(0, len(content) - 1))
    head, _ = read(content[:stop])
    assert isinstance(head.parsed, CheckpointError) or head.parsed.size_faults


class _Stem(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = torch.nn.Conv2d(3, 4, 3, bias=False)
        self.norm = torch.nn.BatchNorm2d(4)
        self.act = torch.nn.SiLU()
        self.stride = torch.ones(3)  # an attribute, which no state dict has
        self.register_buffer("anchors", torch.ones(2), persistent=False)


def test_a_pickled_module_in_the_legacy_form_is_not_followed():
    content = saved(torch.nn.Linear(2, 3), _use_new_zipfile_serialization=False)
    with pytest.raises(UnsafeFileError, match="an object that is not a storage") as raised:
        parsed(content)
    assert any("torch.nn.modules." in line for line in raised.value.imports)


def test_a_pickled_module_is_unsafe_and_has_the_names_of_its_state_dict(subtests):
    for key in [None, "model"]:
        with subtests.test(key=key):
            module = torch.nn.Sequential(
                _Stem(), torch.nn.ModuleList([_Stem(), torch.nn.Linear(2, 3)])
            )
            value = {"epoch": -1, key: module, "ema": None} if key else module
            table = parsed(saved(value), "best.pt")
            shapes = {name: tuple(one.shape) for name, one in module.state_dict().items()}
            assert {one.name: one.shape for one in table.tensors} == shapes
            assert any("_Stem()" in line for line in table.imports)
            assert "a pickled module (torch.nn.modules.container.Sequential)" in table.notes[0]


def test_of_a_training_checkpoint_the_models_tensors_are_read(subtests):
    for form in FORMS:
        with subtests.test(form=form):
            model = torch.nn.Linear(2, 3)
            optimizer = torch.optim.Adam(model.parameters())
            model(torch.ones(2)).sum().backward()
            optimizer.step()
            whole = {"epoch": 3, "model": model.state_dict(), "optimizer": optimizer.state_dict()}
            table = parsed(saved(whole, **form), "last.ckpt")
            assert [one.name for one in table.tensors] == ["bias", "weight"]
            [note] = table.notes
            assert note == (
                "last.ckpt: the state dict under 'model' is read; "
                "next to it are 'epoch', 'optimizer' (6 tensors)"
            )
            assert table.imports == ()


def test_the_state_dict_is_found_where_trainers_put_it(subtests):
    for value, names in [
        ({"state_dict": {"model.a": 1}, "pytorch-lightning_version": "2"}, ["a"]),
        ({"model": {"state_dict": {"a": 1}}}, ["a"]),
        ({"model": {"a": 1}, "state_dict": {"b": 1}}, ["b"]),
        ({"a": 1, "model": {"b": 1}}, ["a", "model.b"]),
        ({"encoder": {"a": 1}, "decoder": {"a": 1, 0: 1}}, ["decoder.0", "decoder.a", "encoder.a"]),
        ({"params": [1, 1]}, ["0", "1"]),
    ]:
        with subtests.test(value=value, names=names):

            def made(one):
                if isinstance(one, dict):
                    return {key: made(inner) for key, inner in one.items()}
                return (
                    list(map(made, one))
                    if isinstance(one, list)
                    else one
                    if one != 1
                    else torch.ones(2)
                )

            assert [one.name for one in parsed(saved(made(value)), "last.ckpt").tensors] == names


def test_what_is_loaded_whole_has_no_name_that_a_model_asks_for_below_a_key(subtests):
    for file in [
        "pytorch_model.bin",
        "unet/diffusion_pytorch_model-00001-of-00002.bin",
        "adapter_model.bin",
    ]:
        for value, names in [
            ({"a.b": 1}, ["a.b"]),
            ({"state_dict": {"a": 1}, "epoch": 3}, ["(state_dict).a"]),
            ({"state_dict": {"model": {"a": 1}}}, ["(state_dict).(model).a"]),
            ({"a": 1, "model": {"b": 1}}, ["(model).b", "a"]),
        ]:
            with subtests.test(file=file, value=value):

                def made(one):
                    if isinstance(one, dict):
                        return {key: made(inner) for key, inner in one.items()}
                    return torch.ones(2) if one == 1 else one

                assert [one.name for one in parsed(saved(made(value)), file).tensors] == names


def test_a_quantised_tensor_is_read_by_its_storage():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        one = torch.quantize_per_tensor(torch.ones(2, 3), 0.1, 0, torch.qint8)
    [stored] = parsed(saved({"a": one})).tensors
    assert (stored.dtype, stored.shape, stored.span.length) == ("QINT8", (2, 3), 6)


def test_a_tensor_that_has_no_bytes_of_its_own_is_a_fault(subtests):
    for value, said in [
        (torch.ones(2, 2).to_sparse(), "is sparse"),
        (torch.ones(2, device="meta"), "from the meta device"),
    ]:
        with subtests.test(value=value, said=said):
            table = parsed(saved({"a": value, "b": torch.ones(1)}))
            assert [one.name for one in table.tensors] == ["b"]
            [fault] = table.faults
            assert fault.names == ("a",)
            assert said in fault.reason


def test_an_older_protocol_is_refused_by_torch_and_not_followed(subtests):
    for protocol in [0, 1]:
        with subtests.test(protocol=protocol):
            content = saved({"a": torch.ones(2)}, pickle_protocol=protocol)
            assert loaded_by_torch(content) is None
            with pytest.raises(
                UnsafeFileError, match=r"may run code: not followed, it has a pickle that"
            ):
                parsed(content)


def test_a_harmless_value_that_torch_refuses_is_a_fault_of_the_file(subtests):
    for value in [slice(1)]:
        with subtests.test(value=value):
            content = saved({"a": torch.ones(2), "b": value})
            table = parsed(content)
            assert loaded_by_torch(content) is None
            [fault] = table.faults
            assert fault.names == ()
            assert (
                "torch.load(weights_only=True), and with it from_pretrained, refuses"
                in fault.reason
            )
            assert table.imports == ()


def test_torch_script_is_distinguished_from_a_state_dict(tmp_path):
    path = tmp_path / "model.pt"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.jit.save(torch.jit.trace(torch.nn.Linear(2, 3), torch.ones(2)), path)
    with pytest.raises(UnsafeFileError, match=r"not followed, it is a TorchScript archive"):
        parsed(path.read_bytes())


def test_torch_reads_what_the_builder_of_these_tests_writes():
    content = torch_bytes({"a": ("F32", (2, 3)), "b": ("BF16", ())})
    loaded = torch.load(io.BytesIO(content), weights_only=True)
    assert {name: tuple(one.shape) for name, one in loaded.items()} == {"a": (2, 3), "b": ()}
    data = (6).to_bytes(8, "little") + bytes(24)
    legacy = legacy_bytes(state({"a": ("F32", (2, 3))}, legacy=True), ["0"], data)
    assert torch.load(io.BytesIO(legacy), weights_only=True)["a"].shape == (2, 3)
    assert [one.shape for one in parsed(legacy).tensors] == [(2, 3)]


def test_a_tensor_that_cannot_be_there_is_a_fault_by_name(subtests):
    for content, storages, said in [
        (state({"a": ("F32", (2, 3))}), [20], "has 20 bytes in the archive, expected 24"),
        (state({"a": ("F32", (2, 3))}), [], "'0' is not in the archive"),
        (pickled({"a": tensor("0", "F32", (2, 3), numel=5)}), [20], "to byte 24 .*which has 20"),
        (pickled({"a": tensor("0", "F32", (2,), numel=2, at=1)}), [8], "to byte 12 .*has 8"),
        (
            pickled({"b": tensor("0", "F32", (2,)), "a": tensor("0", "F32", (3,))}),
            [8],
            "declared as 8 bytes of float32 and as 12 bytes of float32",
        ),
        (
            pickled(
                {"a": tensor("0", "F32", (2,)).replace(b"J\2\0\0\0t(", b"J\xfe\xff\xff\xfft(")}
            ),
            [8],
            "an impossible shape, stride or offset",
        ),
    ]:
        with subtests.test(content=content, storages=storages):
            table = parsed(zipped(content, storages))
            [fault] = table.faults
            assert fault.names == ("a",)
            assert fault.reason.startswith("pytorch_model.bin: tensor 'a'")
            assert re.search(said, fault.reason), fault.reason


def test_a_dict_that_holds_itself_is_not_followed():
    content = b"\x80\x02}q\0(" + text("a") + tensor("0", "F32", (1,)) + text("again") + b"h\0u."
    with pytest.raises(UnsafeFileError, match=r"fills a dict that was used before"):
        parsed(zipped(content, [4]))


def test_references_that_double_are_counted_and_not_followed_for_ever():
    content = b"\x80\x02" + tensor("0", "F32", (1,)) + b"q\0"
    for level in range(40):
        content += b"}q" + bytes([level + 1]) + b"("
        content += text("a") + b"h" + bytes([level]) + text("b") + b"h" + bytes([level]) + b"u"
    with pytest.raises(CheckpointError, match=r"holds (names of )?more than"):
        parsed(zipped(content + b".", [4]))


# Storages and keys


def test_a_file_without_a_storage_that_it_refers_to_is_not_sound(subtests):
    """Whatever uses the storage: torch.load raises for it."""
    for key, lost in [("state_dict", "shorter"), ("optimizer", "absent"), ("optimizer", "shorter")]:
        with subtests.test(key=key, lost=lost):
            value = {"state_dict": {"a": torch.ones(2)}, "optimizer": {"b": torch.ones(3)}}
            content = saved(value)
            number = "0" if key == "state_dict" else "1"
            changed = without_storage(content, number, keep=4 if lost == "shorter" else None)
            with pytest.raises(RuntimeError):
                torch.load(io.BytesIO(changed), weights_only=True)
            assert parsed(content).faults == ()
            assert any(
                f"its storage '{number}'" in fault.reason for fault in parsed(changed).faults
            )


def without_storage(content: bytes, number: str, keep: int | None) -> bytes:
    """Write the archive again, without an entry or with fewer bytes in it."""
    out = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(content)) as old, zipfile.ZipFile(out, "w") as new:
        for info in old.infolist():
            data = old.read(info)
            if info.filename.endswith(f"/data/{number}"):
                if keep is None:
                    continue
                data = data[:keep]
            new.writestr(info.filename, data)
    return out.getvalue()


KEYS = st.one_of(
    *(st.booleans(), st.integers(-2, 2), st.sampled_from([0.0, 1.0, 0.5]), st.none()),
    st.sampled_from(["0", "1", "True", "False", "None", "1.0", "b'x'", "x", "(key 0)"]),
    st.sampled_from([b"x", b"0"]),
)


@given(st.lists(KEYS, min_size=1, max_size=5))
def test_no_key_is_read_as_another_key(keys):
    value = {key: torch.zeros(place + 1) for place, key in enumerate(keys)}
    texts = [
        str(key) if isinstance(key, str | int) else f"(key {place})"
        for place, key in enumerate(value)
    ]
    if len(set(texts)) < len(texts):
        with pytest.raises(CheckpointError, match="under keys with one text"):
            parsed(saved(value))
        return
    table = parsed(saved(value))
    shapes = {one.name: one.shape for one in table.tensors}
    assert len(shapes) == len(value)
    strings = {key: tuple(one.shape) for key, one in value.items() if isinstance(key, str)}
    assert strings.items() <= shapes.items()
    assert ("0" in shapes) == any(type(key) in {str, int} and str(key) == "0" for key in value)


@given(st.text(st.characters(codec="ascii"), min_size=9, max_size=60))
def test_a_text_is_called_a_text_and_not_a_pickle(line):
    text = f"Error: {line}".encode()
    with pytest.raises(CheckpointError) as raised:
        parsed(text, "model.bin")
    assert not isinstance(raised.value, UnsafeFileError)


def test_an_answer_of_a_server_is_quoted(subtests):
    for answer in ["Not Found", "<!DOCTYPE html>\n<p>", '{"error": "gated"}']:
        with subtests.test(answer=answer):
            with pytest.raises(CheckpointError) as raised:
                parsed(answer.encode(), "model.bin")
            assert "an answer of a server, saved as a file" in str(raised.value)
            assert answer.split("\n")[0] in str(raised.value)
