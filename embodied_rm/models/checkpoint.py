"""Save and load `ProgressNet`: safetensors or ONNX graphs, and a JSON manifest that describes the net."""

import hashlib
import json
from collections.abc import Callable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any, TypeVar

from embodied_rm.build_limit import limit_build
from embodied_rm.checkpoint_io import load_files, load_into, load_tensors, read_manifest, save_files, save_tensors
from embodied_rm.errors import CheckpointError, UserError, check_minimum
from embodied_rm.models.encoders import EncoderConfig
from embodied_rm.models.onnx_export import GRAPH_OUTPUTS, export_graphs
from embodied_rm.models.onnx_net import OnnxNet
from embodied_rm.models.progress_net import NetConfig, ProgressNet
from embodied_rm.models.self_test import MANIFEST_KEY, self_test_values
from embodied_rm.stored_fields import check_fields, check_share

ARCHITECTURE = "progress_net"
ONNX_ARCHITECTURE = "progress_net_onnx"
CALIBRATED = ("median_ood", "interval_scale")  # fields that may be None
T = TypeVar("T")


def save_progress_net(folder: Path | str, net: ProgressNet, metadata: Mapping[str, Any]) -> None:
    """Save a net as a checkpoint folder, with a JSON object about it: its metrics, the hash of its data."""
    if isinstance(net, OnnxNet):
        raise UserError("an exported model has no weights to save: copy its folder, or save the model it was made from")
    manifest = {"architecture": ARCHITECTURE, "net": asdict(net.config), "facts": dict(metadata)}
    save_tensors(folder, net.state_dict(), {**manifest, MANIFEST_KEY: self_test_values(net, net.input_spec)})


def load_progress_net(folder: Path | str) -> ProgressNet:
    """Load a net in eval mode, an `OnnxNet` from an exported one; `CheckpointError` for anything else or damaged."""
    if read_manifest(folder)["architecture"] == ONNX_ARCHITECTURE:
        return _load_onnx_net(folder)
    tensors, manifest = load_tensors(folder, ARCHITECTURE)
    with limit_build(tensors, folder):
        net = _build_from_manifest(folder, manifest, ProgressNet)
    load_into(net, tensors, folder)
    return net.eval()


def export_progress_net(folder: Path | str, net: ProgressNet, metadata: Mapping[str, Any]) -> OnnxNet:
    """Export a net as ONNX graphs and load the result; see `export_graphs` for the errors."""
    files = {f"{name}.onnx": content for name, content in export_graphs(net).items()}
    manifest = {"architecture": ONNX_ARCHITECTURE, "net": asdict(net.config), "facts": dict(metadata)}
    exported = OnnxNet(net.config, {name: files[f"{name}.onnx"] for name in GRAPH_OUTPUTS})
    save_files(folder, files, {**manifest, MANIFEST_KEY: self_test_values(exported, exported.input_spec)})
    return _load_onnx_net(folder)


def model_digest(folder: Path | str) -> str:
    """SHA-256 of weights and configuration: models of one training run may share their weights only."""
    manifest = read_manifest(folder)
    content = {key: value for key, value in manifest.items() if key not in ("facts", MANIFEST_KEY, "manifest_sha256")}
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


def weights_digest(folder: Path | str) -> str:
    """SHA-256 of the weights of a checkpoint; for an exported model, of the checkpoint that it was exported from."""
    manifest = read_manifest(folder)
    digest = manifest.get("tensors_sha256") or manifest["facts"].get("exported_from")
    if digest is None:
        raise CheckpointError(f"{folder}: its manifest does not name the source of the export: export it again")
    return str(digest)


def _load_onnx_net(folder: Path | str) -> OnnxNet:
    files, manifest = load_files(folder, ONNX_ARCHITECTURE, [f"{name}.onnx" for name in GRAPH_OUTPUTS])
    graphs = {name: files[f"{name}.onnx"] for name in GRAPH_OUTPUTS}
    return OnnxNet(_build_from_manifest(folder, manifest, lambda config: config), graphs)


def _build_from_manifest(folder: Path | str, manifest: Mapping[str, Any], build: Callable[[NetConfig], T]) -> T:
    """Build an object from the `NetConfig` in a manifest; `CheckpointError` if the configuration is invalid."""
    try:
        return build(_parse_config(manifest["net"]))
    # The libraries have no exception classes of their own: an invalid description raises an error of any class.
    except Exception as error:
        reason = str(error) if isinstance(error, UserError) else repr(error)
        raise CheckpointError(f"{folder}: its manifest describes no net that can be built ({reason})") from None


def _parse_config(stored: Mapping[str, Any]) -> NetConfig:
    encoder = {key: _to_tuple(value) for key, value in stored["encoder"].items()}
    fields = {key: _to_tuple(value) for key, value in stored.items() if key != "encoder"}
    config = NetConfig(**fields, encoder=EncoderConfig(**encoder))
    check_fields(config)
    check_share("success_threshold", config.success_threshold)
    check_minimum(config, 0.0, *(name for name in CALIBRATED if getattr(config, name) is not None))
    if not len(config.views) == len(set(config.views)) > 0:
        raise UserError(f"views must be distinct names, got {list(config.views)}")
    return config


def _to_tuple(value: Any) -> Any:
    """JSON has lists only; the configurations hold tuples."""
    return tuple(value) if isinstance(value, list) else value
