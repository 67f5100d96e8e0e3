"""Files of torch.save are read exactly, and their content is never executed."""

from __future__ import annotations

import argparse
import io
import os
import pickletools
import zipfile
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from embodied_rm.errors import CheckpointError
from embodied_rm.models.released.torch_pickle import GlobalName, UnresolvedObject, read_torch_file

zip_and_legacy = pytest.mark.parametrize("zipped", [True, False], ids=["zip", "before torch 1.6"])


def save(path: Path, value: object, zipped: bool = True) -> Path:
    torch.save(value, path, _use_new_zipfile_serialization=zipped)
    return path


@zip_and_legacy
def test_checkpoint_is_read_exactly(tmp_path: Path, zipped: bool) -> None:
    net = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4))
    optimizer = torch.optim.AdamW(net.parameters())
    net(torch.randn(5, 3)).sum().backward()
    optimizer.step()
    args = argparse.Namespace(lr=1e-4, names=["a", "b"], more={"x": None, "y": (True, -1)})
    checkpoint = {
        "args": args,
        "net": net.state_dict(),
        "optimizer": optimizer.state_dict(),
        "epoch": 19,
        "name": "café",
    }
    read = read_torch_file(save(tmp_path / "a.pth", checkpoint, zipped))
    for name, tensor in net.state_dict().items():
        assert read["net"][name].dtype == tensor.dtype and torch.equal(read["net"][name], tensor), name
    exp_avg = optimizer.state_dict()["state"][0]["exp_avg"]
    assert torch.equal(read["optimizer"]["state"][0]["exp_avg"], exp_avg)
    assert (read["epoch"], read["name"]) == (19, "café")
    assert read["args"] == UnresolvedObject(global_name=GlobalName("argparse", "Namespace"), state=vars(args))


@given(
    dtype=st.sampled_from([torch.float16, torch.bfloat16, torch.float64, torch.int64, torch.uint8, torch.bool]),
    zipped=st.booleans(),
)
def test_all_dtypes_and_tensor_views_are_read(
    tmp_path_factory: pytest.TempPathFactory, dtype: torch.dtype, zipped: bool
) -> None:
    base = torch.arange(24).reshape(4, 6).to(dtype)
    tensors = [base, base.t(), base[1:3, ::2], base[0, 0], base[:0]]
    buffer = io.BytesIO()
    torch.save(tensors, buffer, _use_new_zipfile_serialization=zipped)
    path = tmp_path_factory.getbasetemp() / "numbers.pth"
    path.write_bytes(buffer.getvalue())
    for read, expected in zip(read_torch_file(path), tensors, strict=True):
        assert read.dtype == dtype and torch.equal(read, expected)


class MaliciousObject:
    """An object whose pickle calls a function."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[object, tuple[str]]:
        return os.mkdir, (str(self.path),)


def test_functions_in_the_pickle_are_not_called(tmp_path: Path) -> None:
    target_dir = tmp_path / "ran"
    path = save(tmp_path / "evil.pth", {"net": torch.ones(2), "evil": MaliciousObject(target_dir)})
    read = read_torch_file(path)
    assert not target_dir.exists() and read["evil"] == UnresolvedObject(global_name=GlobalName("posix", "mkdir"))
    with zipfile.ZipFile(path) as archive:
        names = [
            argument
            for opcode, argument, _ in pickletools.genops(archive.read("evil/data.pkl"))
            if opcode.name == "GLOBAL"
        ]
    assert "posix mkdir" in names, "the pickle does call the function"


def write_archive(path: Path, pickled: bytes, storages: dict[str, bytes], compress: int = zipfile.ZIP_STORED) -> Path:
    with zipfile.ZipFile(path, "w", compress) as out:
        out.writestr("a/data.pkl", pickled)
        for name, content in storages.items():
            out.writestr(f"a/data/{name}", content)
    return path


TENSOR = (
    b"\x80\x02ctorch._utils\n_rebuild_tensor_v2\n((X\x07\x00\x00\x00storagectorch\nFloatStorage\nX\x01\x00\x00\x00%(key)sX\x03"
    b"\x00\x00\x00cpuK\x02tQK\x00K%(size)s\x85K%(stride)s\x85\x89ccollections\nOrderedDict\n)RtR."
)
"""Pickle of one tensor of two numbers."""


def test_handwritten_file_is_read(tmp_path: Path) -> None:
    pickled = TENSOR % {b"key": b"0", b"size": b"\x02", b"stride": b"\x01"}
    read = read_torch_file(
        write_archive(tmp_path / "a.pth", pickled, {"0": torch.tensor([1.0, 2.0]).numpy().tobytes()})
    )
    assert torch.equal(read, torch.tensor([1.0, 2.0]))


@pytest.mark.parametrize(
    ("key", "size", "stride", "content", "compress"),
    [
        (b"0", b"\x02", b"\x01", b"1234", zipfile.ZIP_STORED),  # half of the numbers are missing
        (b"0", b"\xff", b"\x00", b"12345678", zipfile.ZIP_STORED),  # the tensor is larger than its storage
        (b"0", b"\x02", b"\x09", b"12345678", zipfile.ZIP_STORED),  # the stride exceeds the storage
        (b"9", b"\x02", b"\x01", b"12345678", zipfile.ZIP_STORED),  # the storage is missing
        (b"/", b"\x02", b"\x01", b"12345678", zipfile.ZIP_STORED),
        (b"0", b"\x02", b"\x01", b"\0" * 8, zipfile.ZIP_DEFLATED),  # a compressed storage
    ],
)
def test_inconsistent_file_is_rejected(tmp_path: Path, key, size, stride, content, compress) -> None:
    pickled = TENSOR % {b"key": key, b"size": size, b"stride": stride}
    with pytest.raises(CheckpointError, match=r"a\.pth: cannot be read without executing"):
        read_torch_file(write_archive(tmp_path / "a.pth", pickled, {"0": content}, compress))


@given(pickled=st.binary(max_size=200))
def test_random_bytes_raise_no_other_error(tmp_path_factory: pytest.TempPathFactory, pickled: bytes) -> None:
    path = write_archive(tmp_path_factory.getbasetemp() / "bytes.pth", pickled, {})
    try:
        read_torch_file(path)
    except CheckpointError:
        return


def test_legacy_functions_are_not_called_and_damage_is_rejected(tmp_path: Path) -> None:
    path = save(tmp_path / "a.pth", {"net": torch.ones(64), "evil": MaliciousObject(tmp_path / "ran")}, zipped=False)
    read = read_torch_file(path)
    assert not (tmp_path / "ran").exists() and read["evil"].global_name == GlobalName("posix", "mkdir")
    content = path.read_bytes()
    forty_billion = (64).to_bytes(1, "little"), b"\x8a\x05\0\0\0\0\x0a"  # a storage that is longer than the file
    for damaged in (
        content[:-8],
        content[:-260],
        content[:100],
        content.replace(b"K" + forty_billion[0], forty_billion[1], 1),
    ):
        path.write_bytes(damaged)
        with pytest.raises(CheckpointError, match=r"a\.pth: cannot be read without executing"):
            read_torch_file(path)


def test_other_files_are_rejected(tmp_path: Path) -> None:
    (tmp_path / "a.pth").write_bytes(b"\x80\x02K\x01.")
    with pytest.raises(CheckpointError, match=r"cannot be read without .*magic number 1"):
        read_torch_file(tmp_path / "a.pth")
    with pytest.raises(CheckpointError, match=r"none\.pth: cannot be read"):
        read_torch_file(tmp_path / "none.pth")
