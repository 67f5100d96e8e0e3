"""Save and load `ZeroShotModel`: its own weights only, and the digests of the encoders that it was trained on."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any, NamedTuple

from embodied_rm.build_limit import limit_build
from embodied_rm.checkpoint_io import load_into, load_tensors, save_tensors
from embodied_rm.errors import UserError
from embodied_rm.models.in_context.frozen_encoder import check_same_weights, open_frozen_encoder
from embodied_rm.models.load_pretrained import checkpoint_errors
from embodied_rm.models.self_test import MANIFEST_KEY, self_test_values
from embodied_rm.models.zero_shot.progress_filter import Readout
from embodied_rm.models.zero_shot.progress_gru import ProgressGruConfig
from embodied_rm.models.zero_shot.sentence_encoder import open_sentence_encoder
from embodied_rm.models.zero_shot.sentence_match import SentenceMatchConfig
from embodied_rm.models.zero_shot.zero_shot_model import ZeroShotModel
from embodied_rm.models.zero_shot.zero_shot_net import ZeroShotConfig, ZeroShotNet
from embodied_rm.stored_fields import check_fields, check_share

ARCHITECTURE = "zero_shot"
NUM_SLOPES = {"success": 2, "relevance": 1}  # of `success_features`, and of the match


def save_zero_shot_model(folder: Path | str, model: ZeroShotModel, metadata: Mapping[str, Any]) -> None:
    """Save a model as a checkpoint folder, with a JSON object about it. The encoders are not stored."""
    manifest = {
        "architecture": ARCHITECTURE,
        "net": describe_net_config(model.net.config),
        "encoder": {"name": model.encoder.name, "sha256": model.encoder.weights_sha256},
        "text_encoder": {"sha256": model.text.weights_sha256},
        "facts": dict(metadata),
        MANIFEST_KEY: self_test_values(model, model.input_spec),
    }
    save_tensors(folder, model.net.state_dict(), manifest)


def load_zero_shot_model(folder: Path | str) -> ZeroShotModel:
    """Load a model and its encoders.

    Raises:
        CheckpointError: When the checkpoint is damaged or of another kind; when an encoder is absent, or has other
            weights than those that the model was trained on.
    """
    net, digests = load_zero_shot_net(folder)
    encoder, text = open_frozen_encoder(digests.encoder_name), open_sentence_encoder()
    check_same_weights(folder, digests.encoder_name, encoder.weights_sha256, digests.encoder_sha256)
    check_same_weights(folder, "minilm", text.weights_sha256, digests.text_sha256)
    return ZeroShotModel(net, encoder, text)


class EncoderDigests(NamedTuple):
    """The encoders that a net was trained on."""

    encoder_name: str
    encoder_sha256: str
    text_sha256: str


def load_zero_shot_net(folder: Path | str) -> tuple[ZeroShotNet, EncoderDigests]:
    """Load the trained part, in eval mode; its encoders need not be installed.

    Raises:
        CheckpointError: When the checkpoint is damaged or of another kind.
    """
    tensors, manifest = load_tensors(folder, ARCHITECTURE)
    message = f"{folder}: its manifest describes no net that can be built"
    with checkpoint_errors(message), limit_build(tensors, folder):
        net = ZeroShotNet(parse_net_config(manifest["net"]))
        encoder = manifest["encoder"]
        digests = EncoderDigests(str(encoder["name"]), str(encoder["sha256"]), str(manifest["text_encoder"]["sha256"]))
    load_into(net, tensors, folder)
    return net.eval(), digests


def describe_net_config(config: ZeroShotConfig) -> dict[str, Any]:
    """Return the JSON object of a config."""
    return asdict(config) | {name: getattr(config, name)._asdict() for name in ("success", "relevance")}


def parse_net_config(stored: Mapping[str, Any]) -> ZeroShotConfig:
    """Return the config of such an object; `KeyError`, `TypeError` or `ValueError` where it is incomplete or wrong."""
    readouts = {
        name: Readout(float(stored[name]["bias"]), tuple(map(float, stored[name]["slopes"])))
        for name in ("success", "relevance")
    }
    gru, match = ProgressGruConfig(**stored["gru"]), SentenceMatchConfig(**stored["match"])
    config = ZeroShotConfig(**{**stored, **readouts, "gru": gru, "match": match})
    check_fields(config)
    check_share("relevance_weight", config.relevance_weight)
    for name, count in NUM_SLOPES.items():
        if len(readouts[name].slopes) != count:
            raise UserError(f"{name}.slopes must be {count} numbers, got {len(readouts[name].slopes)}")
    return config
