"""`audit attest` and `audit verify`: no byte of a statement or of its files changes unseen."""

import json
import os
import random
import re
import shutil
import subprocess
import sys
import tempfile
from importlib.resources import files
from pathlib import Path

import pytest
import typer
from jsonschema import Draft202012Validator
from referencing import Registry, Resource
from rewrite_documents import AUDIT, DOCS
from support.builders import safetensors_bytes
from support.checkpoints import config_bytes, expect, stored_by
from support.output_readers import assert_harmless_text
from support.running import run

from auditor.cli.app import function_of
from auditor.cli.parameters import call
from auditor.publishing import statement

SCHEMA = json.loads((files("auditor.publishing") / "statement.schema.json").read_bytes())
REPORT = json.loads((files("auditor.formats") / "report.schema.json").read_bytes())
PLACES = 200  # bytes to change, each in a run of its own
STATED = "statement.json"


def model_files(*left_out, class_name="BertModel"):
    """The files of a small model without the tensors of some names."""
    tensors = {
        one.name: ("F32", one.shape)
        for one in stored_by(expect("BertModel"))
        if one.name not in left_out
    }
    return {
        "README.md": b"# A model\n",
        "config.json": config_bytes(architectures=[class_name], dtype="float32"),
        "model.safetensors": safetensors_bytes(tensors),
    }


def written(folder, contents):
    folder.mkdir()
    for name, content in contents.items():
        (folder / name).write_bytes(content)
    return folder


@pytest.fixture
def folder(tmp_path):
    return written(tmp_path / "model", model_files())


@pytest.fixture
def keys(tmp_path):
    """The files of a private key and of its public half, as `openssl` writes them."""
    ec = pytest.importorskip(
        "cryptography.hazmat.primitives.asymmetric.ec", reason="needs the extra sign"
    )
    return key_files(tmp_path, ec.generate_private_key(ec.SECP256R1()))


def key_files(folder, private, password=None):
    from cryptography.hazmat.primitives import serialization as pem  # noqa: PLC0415 - an extra

    encryption = pem.BestAvailableEncryption(password) if password else pem.NoEncryption()
    secret = private.private_bytes(pem.Encoding.PEM, pem.PrivateFormat.PKCS8, encryption)
    public = private.public_key().public_bytes(
        pem.Encoding.PEM, pem.PublicFormat.SubjectPublicKeyInfo
    )
    (folder / "key.pem").write_bytes(secret)
    (folder / "key.pub").write_bytes(public)
    return folder / "key.pem", folder / "key.pub"


def code_of(command, *arguments, **options):
    """The exit code of a command that is run in this process."""
    with pytest.raises(typer.Exit) as ended:
        call(function_of(command), *arguments, **{"quiet": True, **options})
    return ended.value.exit_code


# --- what a statement is ------------------------------------------------------------------------


def test_a_statement_follows_in_toto_and_its_schema_whatever_the_verdict(subtests, tmp_path):
    for contents, code in [
        (model_files(), 0),
        (model_files("pooler.dense.bias"), 1),
        (model_files(class_name="UnheardOf"), 3),
        ({**model_files(), "model.safetensors": b"no header"}, 1),
    ]:
        with subtests.test(contents=contents, code=code):
            place = Path(tempfile.mkdtemp(dir=tmp_path))
            folder, output = written(place / "model", contents), place / STATED
            assert code_of("attest", str(folder), output=output) == code
            statement = json.loads(output.read_bytes())
            report = Resource.from_contents(REPORT)
            base = SCHEMA["$id"].rpartition("/")[0]
            registry = Registry().with_resource(f"{base}/report.schema.json", report)
            Draft202012Validator(SCHEMA, registry=registry).validate(statement)
            in_toto = pytest.importorskip("in_toto_attestation.v1.statement")
            json_format = pytest.importorskip("google.protobuf.json_format")
            official = json_format.Parse(output.read_bytes(), in_toto.spb.Statement())
            in_toto.Statement.copy_from_pb(official).validate()
            pytest.importorskip("sigstore.dsse").Statement(output.read_bytes())
            assert {one["name"] for one in statement["subject"]} == set(contents)
            assert code_of("verify", output, str(folder)) == 0


def test_two_folders_with_the_same_files_have_the_same_statement(folder, tmp_path):
    copy = shutil.copytree(folder, tmp_path / "copy")
    for place in (folder, copy):
        code_of("attest", str(place), output=tmp_path / place.name / STATED)
    assert (folder / STATED).read_bytes() == (copy / STATED).read_bytes()
    code_of("attest", str(copy), output=copy / STATED)  # the older statement is not a model's file
    assert (folder / STATED).read_bytes() == (copy / STATED).read_bytes()


# --- signatures ---------------------------------------------------------------------------------


def test_model_signing_reads_the_bundle_and_accepts_its_signature(folder, keys, tmp_path):
    signing = pytest.importorskip("model_signing._signing.sign_ec_key")
    bundles = pytest.importorskip("model_signing._signing.sign_sigstore_pb")
    secret, public = keys
    plain, signed = tmp_path / "plain.json", tmp_path / STATED
    code_of("attest", str(folder), output=plain)
    code_of("attest", str(folder), output=signed, key=secret)
    verifier = signing.Verifier(public)
    found = verifier._verify_signed_content(bundles.Signature.read(signed))  # noqa: SLF001
    assert found == ("application/vnd.in-toto+json", plain.read_bytes())


@pytest.mark.parametrize("kind", ["ed25519", "rsa"])
def test_keys_of_other_kinds_sign_too_and_another_key_does_not_verify(kind, folder, keys, tmp_path):
    _, other = keys
    module = pytest.importorskip(f"cryptography.hazmat.primitives.asymmetric.{kind}")
    private = (
        module.generate_private_key(65537, 2048)
        if kind == "rsa"
        else module.Ed25519PrivateKey.generate()
    )
    (tmp_path / kind).mkdir()
    secret, public = key_files(tmp_path / kind, private)
    output = tmp_path / STATED
    assert code_of("attest", str(folder), output=output, key=secret) == 0
    assert code_of("verify", output, str(folder), key=public) == 0
    assert code_of("verify", output, str(folder), key=other) == 1


def test_a_signature_that_is_missing_or_unchecked_is_not_a_verified_one(folder, keys, tmp_path):
    secret, public = keys
    plain, signed = tmp_path / "plain.json", tmp_path / "signed.json"
    code_of("attest", str(folder), output=plain)
    code_of("attest", str(folder), output=signed, key=secret)
    assert code_of("verify", plain, str(folder)) == 0
    assert code_of("verify", plain, str(folder), key=public) == 1
    assert code_of("verify", signed, str(folder)) == 3
    assert code_of("verify", signed, str(folder), identity="a@example.org") == 1
    assert code_of("verify", signed, str(folder), key=public) == 0
    assert code_of("verify", signed, key=public) == 2  # a folder's statement names no model
    assert code_of("verify", signed, str(folder), key=secret) == 2
    assert "not signed" in run("verify", str(plain), str(folder)).stderr


def test_an_encrypted_key_asks_for_its_password(folder, tmp_path):
    ec = pytest.importorskip("cryptography.hazmat.primitives.asymmetric.ec")
    private = ec.generate_private_key(ec.SECP256R1())
    secret, public = key_files(tmp_path, private, b"a password")
    output = tmp_path / STATED
    arguments = ("attest", str(folder), "-o", str(output), "--key", str(secret))
    assert run(*arguments, stdin="another\n").returncode == 2
    assert run(*arguments, stdin="a password\n").returncode == 0
    assert code_of("verify", output, str(folder), key=public) == 0


def test_a_signature_by_identity_ends_with_a_message_where_no_service_is_reached(
    folder, tmp_path, monkeypatch, capsys
):
    pytest.importorskip("sigstore", reason="needs the extra sign")
    for name in ("HOME", "XDG_DATA_HOME", "XDG_CACHE_HOME"):
        monkeypatch.setenv(name, str(tmp_path / "home"))  # sigstore keeps its root of trust there
    output = tmp_path / STATED
    assert code_of("attest", str(folder), output=output, keyless=True) == 3
    assert "cannot be signed" in capsys.readouterr().err
    assert not output.exists()


def test_a_library_that_is_not_installed_is_named(folder, keys, monkeypatch, capsys):
    secret, _ = keys
    monkeypatch.setitem(sys.modules, "securesystemslib.dsse", None)
    assert code_of("attest", str(folder), key=secret) == 2
    assert "pip install" in capsys.readouterr().err


# --- a changed byte -----------------------------------------------------------------------------


@pytest.mark.parametrize("is_signed", [True, False], ids=["signed", "not signed"])
def test_a_byte_that_is_changed_anywhere_is_found(is_signed, folder, tmp_path, request):
    secret, public = request.getfixturevalue("keys") if is_signed else (None, None)
    output = tmp_path / STATED
    code_of("attest", str(folder), output=output, key=secret)
    draw = random.Random(41)  # noqa: S311 - places to change
    paths = [output, output, output, *sorted(folder.iterdir())]
    passed = []
    for _ in range(PLACES):
        path = draw.choice(paths)
        content = path.read_bytes()
        at = draw.randrange(len(content))
        other = (content[at] + draw.randrange(1, 256)) % 256
        path.write_bytes(content[:at] + bytes([other]) + content[at + 1 :])
        if code_of("verify", output, str(folder), key=public) != 1:
            passed.append((path.name, at, other))
        path.write_bytes(content)
    assert passed == []
    assert code_of("verify", output, str(folder), key=public) == 0


def test_a_file_that_is_added_or_removed_is_found(folder, tmp_path):
    output = tmp_path / STATED
    code_of("attest", str(folder), output=output)
    (folder / "training_args.bin").write_bytes(b"")
    assert code_of("verify", output, str(folder)) == 1
    (folder / "training_args.bin").unlink()
    (folder / "README.md").unlink()
    assert code_of("verify", output, str(folder)) == 1


def by_link(path):
    path.symlink_to("model.safetensors")


def by_link_out(path):
    (path.parent.parent / "secret").write_bytes(b"x")
    path.symlink_to(path.parent.parent / "secret")


def by_link_to_a_folder(path):
    path.symlink_to("..")


def by_broken_link(path):
    path.symlink_to("nothing")


def by_link_to_the_statement(path):
    path.symlink_to(path.parent.parent / STATED)


GAINS = (Path.touch, os.mkfifo, by_link, by_link_out, by_link_to_a_folder, by_broken_link)


GAINED = (
    *(["x.pkl", ".x", ".hidden/x.pkl", ".git/x", "node_modules/x", "__pycache__/x", "venv/bin/x"]),
    *(".cache/huggingface/x.pkl", os.fsdecode(b"\xff")),
)


def test_whatever_a_folder_has_gained_is_a_difference(folder, tmp_path, subtests):
    output = tmp_path / STATED
    assert code_of("attest", str(folder), output=output) == 0
    for gain in (*GAINS, by_link_to_the_statement):
        for number, name in enumerate(GAINED):
            with subtests.test(gain=gain.__name__, name=name):
                place = tmp_path / gain.__name__ / str(number)
                other = shutil.copytree(folder, place / "model")
                shutil.copy(output, place)
                if name.startswith("venv"):
                    (other / "venv").mkdir()
                    (other / "venv" / "pyvenv.cfg").touch()
                (other / name).parent.mkdir(parents=True, exist_ok=True)
                gain(other / name)
                assert code_of("verify", output, str(other)) == 1


def test_a_link_to_the_statement_is_not_the_statement(folder):
    output = folder / STATED
    code_of("attest", str(folder), output=output)
    assert code_of("verify", output, str(folder)) == 0
    (folder / "x.pkl").symlink_to(STATED)
    assert code_of("verify", output, str(folder)) == 1


def test_what_cannot_be_compared_is_named_and_stated(folder, tmp_path):
    output = tmp_path / STATED
    (folder / ".git").mkdir()
    (folder / "dangling").symlink_to("nothing")
    done = run("attest", str(folder), "-o", str(output))
    assert done.returncode == 0
    skipped = json.loads(output.read_bytes())["predicate"]["skipped"]
    assert [one["name"] for one in skipped] == [".git", "dangling"]
    for shown in (done, run("verify", str(output), str(folder))):
        assert shown.returncode == 0
        assert all(f"'{name}': not " in shown.stderr for name in (".git", "dangling"))
    note = folder / ".cache" / "huggingface" / "download" / "config.json.metadata"
    note.parent.mkdir(parents=True)
    note.write_bytes(b"a download\n")
    assert code_of("verify", output, str(folder)) == 0


@pytest.mark.parametrize("name", ["README.md", "sub/x"])
def test_a_folder_with_a_link_out_of_it_is_not_stated(name, folder, tmp_path):
    (folder / name).unlink(missing_ok=True)
    (folder / name).parent.mkdir(exist_ok=True)
    by_link_out(folder / name) if name == "README.md" else (folder / name).symlink_to("/etc")
    done = run("attest", str(folder), "-o", str(tmp_path / STATED))
    assert (done.returncode, (tmp_path / STATED).exists()) == (3, False)
    assert f"links out of the folder, expected files of the model: '{name}'" in done.stderr


# --- files that change between the audit and the digests ------------------------------------------


def by_another_file(path):
    (path.parent.parent / "other").write_bytes(path.read_bytes()[:-1] + b" ")
    (path.parent.parent / "other").replace(path)


def in_place(path):
    path.write_bytes(path.read_bytes()[:-1] + b" ")
    os.utime(path, ns=(1, 1))


def by_its_copy_through_a_link(path):
    path.rename(path.parent.parent / "copy")
    path.symlink_to(path.parent.parent / "copy")


CHANGES = (by_another_file, in_place, by_its_copy_through_a_link)


CASES = [
    (step, name, change)
    for step in ("examine", "read_digests")
    for name, change in zip(model_files(), CHANGES, strict=True)
]


@pytest.mark.parametrize(
    "case", CASES, ids=lambda case: " ".join((case[0], case[1], case[2].__name__))
)
def test_a_statement_has_the_digests_of_what_was_audited(
    case, folder, tmp_path, monkeypatch, capsys
):
    step, name, change = case
    output, work = tmp_path / STATED, getattr(statement, step)

    def after_a_change(*arguments):
        change(folder / name)
        return work(*arguments)

    monkeypatch.setattr(statement, step, after_a_change)
    assert code_of("attest", str(folder), output=output) == 3
    assert not output.exists()
    assert f"{name}' was replaced or changed since it was listed" in capsys.readouterr().err


def test_a_text_that_has_another_digest_than_the_bytes_that_were_read_is_not_stated(
    folder, tmp_path, monkeypatch, capsys
):
    """The clock of a file system is coarse: the state of a file may stay equal."""
    digests = dict.fromkeys(model_files(), "0" * 64)
    monkeypatch.setattr(statement, "read_digests", lambda *_: digests)
    assert code_of("attest", str(folder), output=tmp_path / STATED) == 3
    assert "'config.json': the digest is not that of the bytes" in capsys.readouterr().err


# --- of the Hub ---------------------------------------------------------------------------------


def test_the_statement_of_a_commit_is_verified_on_the_hub_and_in_a_download(
    at_hub, folder, keys, tmp_path
):
    secret, public = keys
    at_hub.add("acme/model", model_files())
    plain, signed = tmp_path / "plain.json", tmp_path / "signed.json"
    assert code_of("attest", "acme/model", output=plain) == 0
    assert code_of("attest", "acme/model", output=signed, key=secret) == 0
    predicate = json.loads(plain.read_bytes())["predicate"]
    read = {one["name"]: one["read"] for one in predicate["files"]}
    assert read == {"README.md": None, "config.json": "complete", "model.safetensors": "header"}
    assert (predicate["model"], predicate["source"]) == ("acme/model", "listing")
    assert code_of("verify", plain) == 0
    assert code_of("verify", signed, key=public) == 0
    assert code_of("verify", signed, str(folder), key=public) == 0
    assert code_of("verify", plain, str(folder)) == 3  # nothing proves which commit it is about
    (folder / "README.md").write_bytes(b"# A modeL\n")
    assert code_of("verify", signed, str(folder), key=public) == 1


@pytest.mark.parametrize("is_signed", [True, False], ids=["signed", "not signed"])
def test_a_statement_is_about_one_model_and_one_commit(
    is_signed, at_hub, tmp_path, request, capsys
):
    folder = written(tmp_path / "model", model_files())
    secret, public = request.getfixturevalue("keys") if is_signed else (None, None)
    output, of_folder = tmp_path / STATED, tmp_path / "folder.json"
    first = at_hub.add("org/a", model_files())
    at_hub.add("evil/b", model_files())
    second = at_hub.push("org/a", model_files())
    assert code_of("attest", f"org/a@{first}", output=output, key=secret) == 0
    assert code_of("attest", str(folder), output=of_folder, key=secret) == 0
    unsure = 0 if is_signed else 3
    for model, code, said in (
        ("evil/b", 1, "the model is 'evil/b', as stated 'org/a'"),
        (f"org/a@{second}", 1, f"the commit is '{second}', as stated '{first}'"),
        (f"org/a@{first}", 0, f"of 'org/a@{first}'"),
        (str(folder), unsure, "the model is none, as stated 'org/a'"),
    ):
        assert code_of("verify", output, model, key=public, quiet=False) == code, model
        assert said in capsys.readouterr().err
    # the Hub lists no sha256 of README.md
    assert code_of("verify", of_folder, "evil/b", key=public, quiet=False) == 3
    shown = capsys.readouterr().err
    assert "the model is 'evil/b', as stated none" in shown
    assert "the source is 'listing', as stated 'local'" in shown


def test_the_clone_of_a_commit_has_a_folder_that_is_not_compared(
    at_hub, folder, keys, tmp_path, capsys
):
    secret, public = keys
    at_hub.add("acme/model", model_files())
    output = tmp_path / STATED
    code_of("attest", "acme/model", output=output, key=secret)
    (folder / ".git").mkdir()
    assert code_of("verify", output, str(folder), key=public) == 3
    assert "not checked: '.git': not looked into" in capsys.readouterr().err


def test_a_commit_that_is_gone_is_not_checked(at_hub, tmp_path):
    at_hub.add("acme/model", model_files())
    output = tmp_path / STATED
    code_of("attest", "acme/model", output=output)
    changed = json.loads(output.read_bytes())
    changed["predicate"]["commit"] = "f" * 40
    output.write_text(json.dumps(changed, indent=1) + "\n")
    assert code_of("verify", output) == 3


# --- untrusted statements -----------------------------------------------------------------------


@pytest.mark.parametrize(
    "change",
    [
        {"files": []},
        {
            "files": [
                {"name": "../\x1b[31m", "size": 1, "sha256": None, "gitBlob": None, "read": None}
            ]
        },
        {"model": "../../etc", "commit": "f" * 40},
        {"audit": {"parts": 3, "verdict": "\x1b[31m"}},
        {"audit": []},
        {"auditor": {"version": "\x1b[31m"}},
    ],
)
def test_a_hostile_statement_is_no_more_than_wrong(change, folder, tmp_path):
    output = tmp_path / STATED
    code_of("attest", str(folder), output=output)
    statement = json.loads(output.read_bytes())
    statement["predicate"].update(change)
    statement["subject"] = [
        {"name": one["name"], "digest": {"sha256": one["sha256"]}}
        for one in statement["predicate"]["files"]
        if one["sha256"]
    ]
    output.write_text(json.dumps(statement, indent=1) + "\n")
    done = run("verify", str(output), str(folder))
    assert done.returncode == 1
    assert_harmless_text(done.stderr)


def test_another_file_is_not_a_statement(subtests, tmp_path):
    for content in [b"", b"{}", b"[" * 100_000, b'{"dsseEnvelope": {}}\n', b"\xff"]:
        with subtests.test(content=content):
            place = Path(tempfile.mkdtemp(dir=tmp_path))
            (place / STATED).write_bytes(content)
            assert code_of("verify", place / STATED, str(place)) == 1
            assert code_of("verify", Path("absent.json"), str(place)) == 2


# --- the document -------------------------------------------------------------------------------


@pytest.mark.skipif(not shutil.which("openssl"), reason="openssl makes the keys of the document")
def test_the_commands_of_the_document_work_in_their_order(tmp_path, monkeypatch):
    pytest.importorskip("cryptography", reason="needs the extra sign")
    written(tmp_path / "my-model", model_files())
    blocks = re.findall(r"```bash\n(.*?)```", (DOCS / "attesting.md").read_text(), re.DOTALL)
    monkeypatch.setenv("PATH", f"{AUDIT.parent}:/usr/bin:/bin")
    done = subprocess.run(  # noqa: S603 - the document's own
        ["/bin/sh", "-ec", "".join(blocks)],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr.count("audit: verified: 3 files") == 2
    assert {one.name for one in tmp_path.glob("*.json")} == {
        "my-model.statement.json",
        "my-model.signed.json",
    }
