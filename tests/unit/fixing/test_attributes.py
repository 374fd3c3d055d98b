"""Owner, mode and extended attributes of a replaced file are those of the new one."""

import errno
import os
import struct

import pytest
from support.folder_fixes import fix
from support.stopped_fixes import spoiled_folder

from auditor.errors import FixError
from auditor.fixing.undo import undo_fix

SHARD = "model-00001-of-00002.safetensors"
NOTE, ACL, DEFAULT_ACL = "user.note", "system.posix_acl_access", "system.posix_acl_default"
# Of linux/posix_acl_xattr.h: a version, then (tag, permissions, id) for the owner, user 1234, the
# group, the mask and others.
NO_ID = 2**32 - 1
ENTRIES = ((1, 6, NO_ID), (2, 4, 1234), (4, 4, NO_ID), (16, 4, NO_ID), (32, 0, NO_ID))
READABLE_BY_1234 = struct.pack("<I", 2) + b"".join(struct.pack("<HHI", *one) for one in ENTRIES)

pytestmark = pytest.mark.skipif(not hasattr(os, "setxattr"), reason="Linux alone")


@pytest.fixture
def folder(tmp_path):
    return spoiled_folder(tmp_path / "model", 2)


def put(path, name, value):
    try:
        os.setxattr(path, name, value)
    except OSError as error:
        if error.errno == errno.ENOTSUP:
            pytest.skip(f"no {name} on this file system")
        raise


def attributes_of(folder):
    return {
        path.name: (
            path.stat().st_mode,
            path.stat().st_uid,
            path.stat().st_gid,
            {name: os.getxattr(path, name) for name in os.listxattr(path)},
        )
        for path in folder.iterdir()
    }


@pytest.mark.parametrize("in_place", [False, True])
def test_a_replaced_file_keeps_its_mode_and_extended_attributes(folder, in_place):
    for path in folder.iterdir():
        path.chmod(0o640)
        put(path, NOTE, path.name.encode())
    put(folder / SHARD, ACL, READABLE_BY_1234)
    before = attributes_of(folder)
    kept = fix(folder, in_place=in_place)
    after = attributes_of(folder)
    for name, attributes in before.items():
        assert after[name] == attributes
    for name in kept:
        assert after[name] == before[name.removesuffix(".orig").removesuffix(".header")]
    undo_fix(folder)
    assert attributes_of(folder) == before


def test_a_replaced_file_gets_no_attributes_that_it_did_not_have(folder):
    """What the folder gives to new files."""
    for path in folder.iterdir():
        path.chmod(0o600)
    put(folder, DEFAULT_ACL, READABLE_BY_1234)
    before = attributes_of(folder)
    fix(folder)
    after = attributes_of(folder)
    assert {name: after[name] for name in before} == before


@pytest.mark.skipif(os.name == "nt" or os.geteuid() != 0, reason="root alone gives files away")
def test_a_replaced_file_keeps_its_owner(folder):
    for path in folder.iterdir():
        os.chown(path, 1234, 4321)
    before = attributes_of(folder)
    fix(folder)
    after = attributes_of(folder)
    assert {name: after[name] for name in before} == before


def test_an_attribute_that_cannot_be_copied_refuses_the_fix(folder, monkeypatch):
    def refuse(*_):
        raise PermissionError(errno.EPERM, "Operation not permitted")

    put(folder / SHARD, NOTE, b"x")
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    monkeypatch.setattr(os, "setxattr", refuse)
    with pytest.raises(FixError, match=f"extended attributes of .*{SHARD}' cannot be copied"):
        fix(folder)
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == before


def test_a_file_system_without_attributes_needs_none(folder, monkeypatch):
    def refuse(*_):
        raise OSError(errno.ENOTSUP, "Operation not supported")

    monkeypatch.setattr(os, "listxattr", refuse)
    assert fix(folder)
