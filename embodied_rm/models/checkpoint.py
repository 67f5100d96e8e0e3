"""`ProgressNet` on disk and back: safetensors and a JSON manifest that describes the net completely."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from embodied_rm.checkpoint_io import load_into, load_tensors, save_tensors
from embodied_rm.errors import CheckpointError, UserError
from embodied_rm.models.encoders import EncoderConfig
from embodied_rm.models.progress_net import NetConfig, ProgressNet

ARCHITECTURE = "progress_net"


def save_progress_net(folder: Path | str, net: ProgressNet, facts: Mapping[str, Any]) -> None:
    """Write the net; `facts` is any JSON object about it: hash of its data, metrics."""
    manifest = {"architecture": ARCHITECTURE, "net": asdict(net.config), "facts": dict(facts)}
    save_tensors(folder, net.state_dict(), manifest)


def load_progress_net(folder: Path | str) -> ProgressNet:
    """The net in eval mode. Raises `CheckpointError` for anything but an intact checkpoint of this architecture."""
    tensors, manifest = load_tensors(folder, ARCHITECTURE)
    try:
        net = ProgressNet(_config(manifest["net"]))
    except (KeyError, TypeError, ValueError, RuntimeError, AttributeError) as fault:
        reason = str(fault) if isinstance(fault, UserError) else repr(fault)
        raise CheckpointError(f"{folder}: its manifest describes no net that can be built ({reason})") from None
    load_into(net, tensors, folder)
    return net.eval()


def _config(stored: Mapping[str, Any]) -> NetConfig:
    encoder = {key: _tuple(value) for key, value in stored["encoder"].items()}
    rest = {key: _tuple(value) for key, value in stored.items() if key != "encoder"}
    return NetConfig(**rest, encoder=EncoderConfig(**encoder))


def _tuple(value: Any) -> Any:
    """JSON has lists only; our configurations hold tuples."""
    return tuple(value) if isinstance(value, list) else value
