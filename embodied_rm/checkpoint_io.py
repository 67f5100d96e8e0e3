"""Checkpoint folders: tensors and files with a JSON manifest of SHA-256 digests.

Loading executes no code and detects every flipped bit.
"""

import hashlib
import json
import re
import stat
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load as parse_tensors
from safetensors.torch import save as serialize_tensors
from torch import Tensor, nn

from embodied_rm.atomic_file import write_atomic
from embodied_rm.errors import CheckpointError
from embodied_rm.free_memory import free_memory_bytes
from embodied_rm.text_file import MAX_TEXT_BYTES

MANIFEST_NAME = "manifest.json"
CARD_FILE = "README.md"  # the model card, beside the manifest
RESERVED_KEYS = ("manifest_sha256", "tensors", "tensors_sha256", "files_sha256")


def save_tensors(folder: Path | str, tensors: Mapping[str, Tensor], manifest: Mapping[str, Any]) -> None:
    """Write a checkpoint folder. At any time the folder holds the complete old or the complete new checkpoint.

    The tensor file is named after its content; the manifest that points to it is written last. It has a string
    `architecture` and no reserved key. `CheckpointError` if a tensor holds NaN or infinity.
    """
    root = Path(folder)
    assert isinstance(manifest.get("architecture"), str), "a manifest names its architecture"
    assert not set(manifest) & set(RESERVED_KEYS), f"reserved manifest keys: {RESERVED_KEYS}"
    if (name := _find_non_finite(tensors)) is not None:
        raise CheckpointError(f"{root}: refusing to save tensor {name!r}, it holds NaN or infinity")
    content = to_safetensors(tensors)
    digest = hashlib.sha256(content).hexdigest()
    root.mkdir(parents=True, exist_ok=True)
    write_atomic(_tensor_file(root, digest), content)
    _write_manifest(root, {**manifest, "tensors": _describe_tensors(tensors), "tensors_sha256": digest})
    for stale in {*root.glob("tensors-*"), *root.glob(".*.partial")} - {_tensor_file(root, digest)}:
        stale.unlink()


def load_tensors(folder: Path | str, architecture: str) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Return the tensors and the manifest of a checkpoint folder.

    Raises:
        CheckpointError: A file is missing or altered, or the architecture differs. The message names the file.
    """
    root = Path(folder)
    manifest = _load_manifest(root, architecture, ("tensors", "tensors_sha256"))
    ((name, digest),) = _file_digests(root, {"tensors_sha256": manifest["tensors_sha256"]}).items()
    path = root / name
    tensors = _parse_tensors(_read_verified(path, digest), path)
    if (invalid := _find_non_finite(tensors)) is not None:
        raise CheckpointError(f"{path}: tensor {invalid!r} holds NaN or infinity")
    if _describe_tensors(tensors) != manifest["tensors"]:
        raise CheckpointError(f"{path}: tensor names, shapes or types differ from those listed in {MANIFEST_NAME}")
    return tensors, _strip_digests(manifest)


def save_files(folder: Path | str, files: Mapping[str, bytes], manifest: Mapping[str, Any]) -> None:
    """Write files by name, then the manifest that lists their digests."""
    root = Path(folder)
    root.mkdir(parents=True, exist_ok=True)
    for name, content in files.items():
        write_atomic(root / name, content)
    digests = {name: hashlib.sha256(content).hexdigest() for name, content in files.items()}
    _write_manifest(root, {**manifest, "files_sha256": digests})


def load_files(folder: Path | str, architecture: str, names: Sequence[str]) -> tuple[dict[str, bytes], dict[str, Any]]:
    """Return the files `names` and the manifest of a folder written by `save_files`.

    Raises:
        CheckpointError: A file is missing or altered, or the architecture differs. The message names the file.
    """
    root = Path(folder)
    manifest = _load_manifest(root, architecture, ("files_sha256",))
    digests = _file_digests(root, manifest)
    files = {name: _read_verified(root / name, digests.get(name)) for name in names}
    return files, _strip_digests(manifest)


def list_files(folder: Path | str) -> list[str]:
    """Return the names of the files that the manifest of a checkpoint folder lists, which need not be there.

    Raises:
        CheckpointError: The manifest is missing or altered, or lists something else than files beside it.
    """
    return list(_file_digests(Path(folder), read_manifest(folder)))


def read_checkpoint(folder: Path | str) -> dict[str, bytes]:
    """Return the content of the manifest and of the files that it lists, by name.

    Raises:
        CheckpointError: A file is missing or altered. The message names the file.
    """
    root, manifest = Path(folder), read_manifest(folder)
    files = {name: _read_verified(root / name, digest) for name, digest in _file_digests(root, manifest).items()}
    return {MANIFEST_NAME: _canonical_json(manifest), **files}


def read_manifest(folder: Path | str) -> dict[str, Any]:
    """Return the verified manifest of a checkpoint folder without reading the files it lists.

    Raises:
        CheckpointError: The manifest is missing, not valid, or altered.
    """
    path = Path(folder) / MANIFEST_NAME
    content = read_bytes(path, MAX_TEXT_BYTES)
    manifest = parse_json_object(content, path)
    if not {"architecture", "manifest_sha256"} <= set(manifest):
        raise CheckpointError(f"{path}: not a checkpoint manifest; it must hold architecture, manifest_sha256")
    if not isinstance(manifest.get("facts", {}), dict):
        raise CheckpointError(f"{path}: facts must be an object, got {manifest['facts']!r}")
    rest = {key: value for key, value in manifest.items() if key != "manifest_sha256"}
    try:
        # JSON accepts some flips, such as 1e-05 written as 1E-05; comparing the bytes detects them.
        is_intact = manifest["manifest_sha256"] == _sha256(rest) and content == _canonical_json(manifest)
    except (ValueError, RecursionError) as error:  # NaN, half of a surrogate pair, thousands of brackets
        raise CheckpointError(f"{path}: not a checkpoint manifest ({error})") from None
    if not is_intact:
        raise CheckpointError(f"{path}: the content does not match its own SHA-256; the file is damaged or was edited")
    return manifest


def parse_json_object(content: bytes, path: Path) -> dict[str, Any]:
    """Return the JSON object that a file holds; `CheckpointError` if its content is none."""
    try:
        value = json.loads(content)
    except (ValueError, RecursionError) as error:
        raise CheckpointError(f"{path}: not JSON ({error})") from None
    if not isinstance(value, dict):
        raise CheckpointError(f"{path}: not a JSON object")
    return value


def load_into(module: nn.Module, tensors: Mapping[str, Tensor], source: Path | str) -> None:
    """Copy the tensors into the module.

    Raises:
        CheckpointError: Names, shapes or dtypes differ from those of the module.
    """
    expected = module.state_dict()
    for error, names in (
        ("lacks", expected.keys() - tensors.keys()),
        ("has unknown", tensors.keys() - expected.keys()),
    ):
        if names:
            raise CheckpointError(f"{source}: the checkpoint {error} tensors: {', '.join(sorted(names))}")
    for name, tensor in expected.items():
        stored = tensors[name]
        if stored.shape != tensor.shape or stored.dtype != tensor.dtype:
            raise CheckpointError(
                f"{source}: tensor {name!r} is {stored.dtype} {list(stored.shape)}, "
                f"the model needs {tensor.dtype} {list(tensor.shape)}"
            )
    module.load_state_dict(dict(tensors))


def to_safetensors(tensors: Mapping[str, Tensor]) -> bytes:
    """Serialize tensors to the content of a safetensors file."""
    return serialize_tensors({name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()})


def add_prefix(prefix: str, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Rename each tensor to `prefix.name`, so that several modules fit into one checkpoint."""
    return {f"{prefix}.{name}": tensor for name, tensor in tensors.items()}


def pack_json(value: object) -> Tensor:
    """Encode a JSON value as a uint8 tensor."""
    return torch.frombuffer(bytearray(json.dumps(value).encode()), dtype=torch.uint8)


def unpack_json(tensor: Tensor) -> Any:
    """Decode a tensor written by `pack_json`."""
    return json.loads(tensor.cpu().numpy().tobytes())


def strip_prefix(prefix: str, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return the tensors stored by `add_prefix` under their original names."""
    return {
        name.removeprefix(prefix + "."): tensor for name, tensor in tensors.items() if name.startswith(prefix + ".")
    }


def _load_manifest(root: Path, architecture: str, keys: Sequence[str]) -> dict[str, Any]:
    """Read the manifest and check its architecture and keys."""
    manifest = read_manifest(root)
    if manifest["architecture"] != architecture:
        raise CheckpointError(
            f"{root / MANIFEST_NAME}: holds a checkpoint of architecture {manifest['architecture']!r}, "
            f"not of {architecture!r}"
        )
    if not set(keys) <= set(manifest):
        raise CheckpointError(f"{root / MANIFEST_NAME}: incomplete manifest; it must hold {', '.join(keys)}")
    return manifest


def _file_digests(root: Path, manifest: Mapping[str, Any]) -> dict[str, str]:
    """Return the SHA-256 of each file that a manifest lists, by name."""
    listed = manifest.get("files_sha256", {})
    if not isinstance(listed, dict):
        raise CheckpointError(f"{root / MANIFEST_NAME}: files_sha256 must hold the SHA-256 of each file by its name")
    digests: dict[str, str] = dict(listed)
    if "tensors_sha256" in manifest:
        digest = str(manifest["tensors_sha256"])
        if not re.fullmatch(r"[0-9a-f]{64}", digest):
            raise CheckpointError(f"{root / MANIFEST_NAME}: tensors_sha256 must be 64 hexadecimal digits")
        digests[_tensor_file(root, digest).name] = digest
    # A name with a folder would read, and upload, a file from elsewhere on the machine.
    for name in digests:
        if not re.fullmatch(r"\w[\w.-]*", name):
            raise CheckpointError(f"{root / MANIFEST_NAME}: lists {name!r}, which is not the name of a file beside it")
    return digests


def _read_verified(path: Path, digest: str | None) -> bytes:
    """Read a file; `CheckpointError` unless its SHA-256 is the one in the manifest."""
    content = read_bytes(path)
    if hashlib.sha256(content).hexdigest() != digest:
        raise CheckpointError(f"{path}: the content does not match the SHA-256 in {MANIFEST_NAME}; the file is damaged")
    return content


def _strip_digests(manifest: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in manifest.items() if key not in RESERVED_KEYS}


def _write_manifest(root: Path, manifest: Mapping[str, Any]) -> None:
    write_atomic(root / MANIFEST_NAME, _canonical_json({**manifest, "manifest_sha256": _sha256(manifest)}))


def _find_non_finite(tensors: Mapping[str, Tensor]) -> str | None:
    """Return the name of a tensor with NaN or infinity; None if there is none."""
    for name, tensor in tensors.items():
        if tensor.is_floating_point() and not bool(torch.isfinite(tensor).all()):
            return name
    return None


def _tensor_file(root: Path, digest: str) -> Path:
    return root / f"tensors-{digest[:16]}.safetensors"


def _describe_tensors(tensors: Mapping[str, Tensor]) -> dict[str, dict[str, Any]]:
    return {
        name: {"shape": list(tensor.shape), "dtype": str(tensor.dtype).removeprefix("torch.")}
        for name, tensor in sorted(tensors.items())
    }


def _canonical_json(value: Mapping[str, Any]) -> bytes:
    return (json.dumps(value, indent=2, sort_keys=True, allow_nan=False, ensure_ascii=False) + "\n").encode()


def _sha256(value: Mapping[str, Any]) -> str:
    return hashlib.sha256(_canonical_json(value)).hexdigest()


def read_bytes(path: Path, max_bytes: int | None = None) -> bytes:
    """Read a file; `CheckpointError` if it cannot be read, or has more than `max_bytes` (None: the free memory)."""
    check_regular_file(path)
    try:
        if path.stat().st_size > (free_memory_bytes() if max_bytes is None else max_bytes):
            raise MemoryError
        return path.read_bytes()
    except OSError as error:
        raise CheckpointError(f"{path}: cannot be read ({error.strerror})") from None
    except MemoryError:
        limit = "the free memory" if max_bytes is None else f"{max_bytes >> 20} MiB"
        raise CheckpointError(f"{path}: larger than {limit}") from None


def check_regular_file(path: Path) -> None:
    """Raise `CheckpointError` unless a path is a file: a pipe or a device may have no end."""
    try:
        mode = path.stat().st_mode
    except OSError as error:
        raise CheckpointError(f"{path}: cannot be read ({error.strerror})") from None
    if not stat.S_ISREG(mode):
        raise CheckpointError(f"{path}: cannot be read (not a regular file)")


def check_regular_files(folder: Path) -> None:
    """Raise `CheckpointError` if a folder, or one in it, holds a pipe or a device: libraries read it by name."""
    for path in sorted(folder.rglob("*")):
        if path.exists() and not path.is_dir():
            check_regular_file(path)


def _parse_tensors(content: bytes, path: Path) -> dict[str, Tensor]:
    try:
        return parse_tensors(content)
    except Exception as error:  # among others KeyError, for a type that torch does not have
        raise CheckpointError(f"{path}: not a safetensors file of types of torch ({error!r})") from None
