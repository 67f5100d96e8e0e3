"""Files of torch.save that describe more than they hold: refused in one sentence, in memory bounded by their size."""

from __future__ import annotations

import argparse
import os
import zipfile
from pathlib import Path

import pytest
import torch

from embodied_rm.errors import CheckpointError
from embodied_rm.models.released import torch_pickle
from embodied_rm.models.released.goal_distance import read_state_dict
from embodied_rm.models.released.rewind import load_net
from embodied_rm.models.released.torch_pickle import STORAGE_DTYPES, read_torch_file

LEVELS = 24  # of nested containers: 2^24 brackets when they are printed, in 200 bytes
MAX_MESSAGE_LENGTH = 600
CPU = b"X\x03\x00\x00\x00cpu"


def text(value: str) -> bytes:
    return b"X" + len(value).to_bytes(4, "little") + value.encode()


def nested(opcode: bytes) -> bytes:
    """A container of twice the former, 24 times."""
    level = {b"l": b"(%b%bl", b"t": b"%b%b\x86"}[opcode]
    steps = (level % (b"h%c" % i, b"h%c" % i) + b"q%c0" % (i + 1) for i in range(LEVELS))
    return b"Nq\x000" + b"".join(steps) + b"h%c" % LEVELS


def archive(path: Path, pickled: bytes, storages: dict[str, bytes] | None = None, method: int = 0) -> Path:
    with zipfile.ZipFile(path, "w", method) as out:
        out.writestr("a/data.pkl", b"\x80\x02" + pickled)
        for name, content in (storages or {}).items():
            out.writestr(f"a/data/{name}", content)
    return path


def storage(key: bytes, count: bytes = b"K\x02", kind: str = "FloatStorage") -> bytes:
    return b"(" + text("storage") + f"ctorch\n{kind}\n".encode() + key + CPU + count + b"tQ"


def refused(path: Path) -> str:
    with pytest.raises(CheckpointError) as error_info:
        read_torch_file(path)
    message = str(error_info.value)
    assert message.startswith(str(path)) and "\n" not in message and len(message) < MAX_MESSAGE_LENGTH + len(str(path))
    return message


@pytest.mark.parametrize(
    ("pickled", "reason"),
    [
        (nested(b"l") + b")R.", "a call of an object of type list"),
        (nested(b"l") + b"Q.", "ValueError"),
        (storage(nested(b"l")) + b".", "a storage without a key"),
        (storage(text("0"), nested(b"t")) + b".", "a storage without a key or a length"),
        (b"}" + nested(b"t") + b"K\x01s.", "a key of type tuple"),
        (b"}(" + nested(b"t") + b"K\x01u.", "a key of type tuple"),
        (b"ccollections\nOrderedDict\n(" + nested(b"t") + b"K\x01\x86l\x85R.", "an OrderedDict of other items"),
        (b"]" + nested(b"t") + b"K\x01s.", "entries of an object of type list"),
        (b"\x8b\x00\x10\x00\x00" + b"\x7f" * 4096 + b".", "an integer of more than 127 bits"),
        (b"X\xff\xff\xff\x7f.", "ValueError"),
        (text("\n" * 900) + b"Q.", "ValueError"),
    ],
)
def test_content_is_neither_printed_nor_hashed(tmp_path: Path, pickled: bytes, reason: str) -> None:
    assert reason in refused(archive(tmp_path / "a.pth", pickled))


def rebuild(size: bytes) -> bytes:
    """A tensor of a storage of two numbers, with a given size."""
    return b"ctorch._utils\n_rebuild_tensor_v2\n(" + storage(text("0")) + b"K\x00" + size + b")tR."


LARGE = b"\x8a\x10" + (2**126).to_bytes(16, "little")


@pytest.mark.parametrize(
    ("size", "reason"),
    [
        (b"(" + LARGE + b"q\x00" + b"h\x00" * 60_000 + b"t", "a tensor of 60001 dimensions"),
        (b"(K\x00]" + LARGE + b"t", "lengths that are no integers"),
    ],
)
def test_lengths_of_a_tensor_are_checked_before_they_are_multiplied(tmp_path: Path, size: bytes, reason: str) -> None:
    assert reason in refused(archive(tmp_path / "a.pth", rebuild(size), {"0": bytes(8)}))


def test_keys_of_one_hash_are_refused(tmp_path: Path) -> None:
    """Multiples of 2^61 - 1 have the hash 0: a dictionary of n of them takes n^2 steps."""
    keys = b"".join(b"\x8a\x10" + (n * (2**61 - 1)).to_bytes(16, "little") + b"N" for n in range(50_000))
    assert "a key of more than 61 bits" in refused(archive(tmp_path / "a.pth", b"}(" + keys + b"u."))


def test_legacy_magic_number_is_not_printed(tmp_path: Path) -> None:
    (tmp_path / "a.pth").write_bytes(b"\x80\x02" + nested(b"l") + b".")
    assert "magic number list" in refused(tmp_path / "a.pth")


@pytest.mark.parametrize("zipped", [True, False])
def test_operations_are_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, zipped: bool) -> None:
    """A byte of the pickle can be a set of 216 bytes in memory."""
    monkeypatch.setattr(torch_pickle, "MAX_OPCODES", 1000)
    sets, path = b"\x8f" * 1002, tmp_path / "a.pth"
    if zipped:
        archive(path, sets)
    else:
        path.write_bytes(sets)
    assert "more than 1000 operations" in refused(path)


@pytest.mark.parametrize("method", [zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA])
@pytest.mark.parametrize("damaged", [False, True])
def test_nothing_is_decompressed(tmp_path: Path, method: int, damaged: bool) -> None:
    path = archive(tmp_path / "a.pth", b"\x8f" * 100_000 + b".", method=method)
    if damaged:
        content = bytearray(path.read_bytes())
        content[60:70] = b"\xff" * 10
        path.write_bytes(content)
    assert "is compressed" in refused(path)


def test_tensors_of_one_storage_share_it(tmp_path: Path) -> None:
    """4 MB would become 8 GB if each tensor were a copy."""
    numbers = torch.zeros(1_000_000)
    path = tmp_path / "a.pth"
    torch.save([numbers[i:] for i in range(2000)], path)
    read = read_torch_file(path)
    assert len(read) == 2000 and len({tensor.untyped_storage().data_ptr() for tensor in read}) == 1


def test_storages_are_not_longer_than_the_file(tmp_path: Path) -> None:
    """The same bytes as storages of several types."""
    bytes_of_kind = {kind: 4096 // dtype.itemsize for kind, dtype in STORAGE_DTYPES.items()}
    pickled = b"".join(storage(text("0"), b"M" + n.to_bytes(2, "little"), kind) for kind, n in bytes_of_kind.items())
    path = archive(tmp_path / "a.pth", pickled + b".", {"0": bytes(4096)})
    assert path.stat().st_size < 8192 and "longer than the file" in refused(path)


def test_truncated_archive(tmp_path: Path) -> None:
    """The directory names more bytes of the pickle than there are."""
    path = archive(tmp_path / "a.pth", b"N.")
    content = bytearray(path.read_bytes())
    entry = content.index(b"PK\x01\x02")
    content[entry + 20 : entry + 28] = (10_000).to_bytes(4, "little") * 2
    path.write_bytes(content)
    refused(path)


def test_too_little_memory_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    torch.save([torch.ones(2)], tmp_path / "a.pth")

    def fail(*_: object, **__: object) -> None:
        raise MemoryError

    monkeypatch.setattr(torch, "frombuffer", fail)
    assert "larger than the free memory" in refused(tmp_path / "a.pth")


@pytest.mark.parametrize("kind", ["pipe", "device", "folder"])
def test_only_files_are_read(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "model.pt"
    if kind == "pipe":
        os.mkfifo(path)
    elif kind == "device":
        path.symlink_to("/dev/zero")
    else:
        path.mkdir()
    assert "not a regular file" in refused(path)


class Namespace(argparse.Namespace):
    """An object whose state is not a dictionary."""

    def __reduce__(self) -> tuple[object, tuple[()], object]:
        return argparse.Namespace, (), self.value


def namespace(value: object) -> object:
    return Namespace(value=value)


@pytest.mark.parametrize(
    ("args", "reason"),
    [
        (argparse.Namespace(max_length=torch.arange(3)), "a max_length of type Tensor"),
        (argparse.Namespace(max_length="16"), "a max_length of type str"),
        (argparse.Namespace(max_length=8), "videos of 8 frames"),
        (namespace([1]), "not a ReWiND as released"),
        (namespace(None), "not a ReWiND as released"),
        (3, "not a ReWiND as released"),
    ],
)
def test_invalid_arguments_of_rewind(tmp_path: Path, args: object, reason: str) -> None:
    path = tmp_path / "a.pth"
    torch.save({"args": args, "model_state_dict": {"weight": torch.ones(1)}}, path)
    with pytest.raises(CheckpointError, match=reason) as error_info:
        load_net(path)
    assert "\n" not in str(error_info.value)


@pytest.mark.parametrize("stored", [{3: torch.ones(1)}, {"module.convnet.a": "text"}, {None: 1, "b": [2]}, [1], None])
@pytest.mark.parametrize("key", ["r3m", "model_state_dict"])
def test_state_dict_without_tensors(tmp_path: Path, stored: object, key: str) -> None:
    torch.save({key: stored, 7: 8}, tmp_path / "model.pt")
    with pytest.raises(CheckpointError, match=r"model\.pt: no .*7"):
        read_state_dict(tmp_path, "r3m", "module.convnet.") if key == "r3m" else load_net(tmp_path / "model.pt")
