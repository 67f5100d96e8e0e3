"""`ProgressNet` on disk and back: safetensors, or exported as ONNX, and a JSON manifest that describes the net."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any, TypeVar

from embodied_rm.checkpoint_io import load_files, load_into, load_tensors, read_manifest, save_files, save_tensors
from embodied_rm.errors import CheckpointError, UserError
from embodied_rm.models.encoders import EncoderConfig
from embodied_rm.models.onnx_export import GRAPH_OUTPUTS, export_graphs
from embodied_rm.models.onnx_net import OnnxNet
from embodied_rm.models.progress_net import NetConfig, ProgressNet
from embodied_rm.models.self_test import MANIFEST_KEY, self_test_values

ARCHITECTURE = "progress_net"
ONNX_ARCHITECTURE = "progress_net_onnx"
T = TypeVar("T")


def save_progress_net(folder: Path | str, net: ProgressNet, metadata: Mapping[str, Any]) -> None:
    """Write the net; `facts` is any JSON object about it: hash of its data, metrics."""
    manifest = {"architecture": ARCHITECTURE, "net": asdict(net.config), "facts": dict(metadata)}
    save_tensors(folder, net.state_dict(), {**manifest, MANIFEST_KEY: self_test_values(net, net.input_spec)})


def load_progress_net(folder: Path | str) -> ProgressNet:
    """The net in eval mode, an `OnnxNet` from an exported one.

    Raises `CheckpointError` for anything but an intact checkpoint of these architectures.
    """
    if read_manifest(folder)["architecture"] == ONNX_ARCHITECTURE:
        return _load_onnx_net(folder)
    tensors, manifest = load_tensors(folder, ARCHITECTURE)
    net = _build_from_manifest(folder, manifest, ProgressNet)
    load_into(net, tensors, folder)
    return net.eval()


def export_progress_net(folder: Path | str, net: ProgressNet, metadata: Mapping[str, Any]) -> OnnxNet:
    """Write the net as ONNX graphs and return it as it will be loaded.

    Raises `UserError` without the packages that write ONNX, for a net that is exported already and for one that has no
    form in ONNX.
    """
    files = {f"{name}.onnx": content for name, content in export_graphs(net).items()}
    manifest = {"architecture": ONNX_ARCHITECTURE, "net": asdict(net.config), "facts": dict(metadata)}
    exported = OnnxNet(net.config, {name: files[f"{name}.onnx"] for name in GRAPH_OUTPUTS})
    save_files(folder, files, {**manifest, MANIFEST_KEY: self_test_values(exported, exported.input_spec)})
    return _load_onnx_net(folder)


def model_digest(folder: Path | str) -> str:
    """SHA-256 of all that decides how a model judges: its weights, and how they are put together. Two models of one
    training may share their weights and fuse their perspectives otherwise."""
    manifest = read_manifest(folder)
    content = {key: value for key, value in manifest.items() if key not in ("facts", MANIFEST_KEY, "manifest_sha256")}
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


def weights_digest(folder: Path | str) -> str:
    """SHA-256 of the weights in a checkpoint, or of those that an export was made from.

    Raises `CheckpointError` for an export that does not say.
    """
    manifest = read_manifest(folder)
    digest = manifest.get("tensors_sha256") or manifest["facts"].get("exported_from")
    if digest is None:
        raise CheckpointError(f"{folder}: does not say what it was exported from: export it again")
    return str(digest)


def _load_onnx_net(folder: Path | str) -> OnnxNet:
    files, manifest = load_files(folder, ONNX_ARCHITECTURE, [f"{name}.onnx" for name in GRAPH_OUTPUTS])
    graphs = {name: files[f"{name}.onnx"] for name in GRAPH_OUTPUTS}
    return OnnxNet(_build_from_manifest(folder, manifest, lambda config: config), graphs)


def _build_from_manifest(folder: Path | str, manifest: Mapping[str, Any], build: Callable[[NetConfig], T]) -> T:
    """What is made of the net's description. Raises `CheckpointError` when that describes none."""
    try:
        return build(_parse_config(manifest["net"]))
    except (KeyError, TypeError, ValueError, RuntimeError, AttributeError) as error:
        reason = str(error) if isinstance(error, UserError) else repr(error)
        raise CheckpointError(f"{folder}: its manifest describes no net that can be built ({reason})") from None


def _parse_config(stored: Mapping[str, Any]) -> NetConfig:
    encoder = {key: _to_tuple(value) for key, value in stored["encoder"].items()}
    fields = {key: _to_tuple(value) for key, value in stored.items() if key != "encoder"}
    return NetConfig(**fields, encoder=EncoderConfig(**encoder))


def _to_tuple(value: Any) -> Any:
    """JSON has lists only; our configurations hold tuples."""
    return tuple(value) if isinstance(value, list) else value
