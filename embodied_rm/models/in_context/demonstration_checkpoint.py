"""Save and load `DemonstrationModel`: its encoded demonstrations, and the digest of the encoder."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from embodied_rm.build_limit import limit_build
from embodied_rm.checkpoint_io import add_prefix, load_into, load_tensors, read_manifest, save_tensors, strip_prefix
from embodied_rm.errors import CheckpointError
from embodied_rm.models.in_context.cell_metric import CellMetric
from embodied_rm.models.in_context.demonstration_model import DemonstrationModel
from embodied_rm.models.in_context.demonstration_values import check_demonstration
from embodied_rm.models.in_context.direction import DirectionSkill
from embodied_rm.models.in_context.encoded_demonstration import EncodedDemonstration, EncodedView
from embodied_rm.models.in_context.frozen_encoder import check_same_weights, open_frozen_encoder
from embodied_rm.models.load_pretrained import checkpoint_errors
from embodied_rm.models.self_test import MANIFEST_KEY, self_test_values
from embodied_rm.models.zero_shot.zero_shot_checkpoint import describe_net_config, parse_net_config
from embodied_rm.models.zero_shot.zero_shot_net import ZeroShotNet
from embodied_rm.types import Views

ARCHITECTURE = "demonstration"
CELL_TENSORS = ("coarse", "scene", "changed")  # stored in half precision
METRIC_TENSORS = ("directions", "gains")
NET_PREFIX = "direction_net"


def save_demonstration_model(folder: Path | str, model: DemonstrationModel, metadata: Mapping[str, Any]) -> None:
    """Save a model as a checkpoint folder, with a JSON object about it. The encoder is not stored.

    Tensors are stored in half precision; the predictions of the self-test are those of the stored model.
    """
    tensors: dict[str, Tensor] = {}
    for index, demonstration in enumerate(model.demonstrations):
        tensors |= {f"{index}.{name}": tensor for name, tensor in pack_demonstration(demonstration).items()}
    description = [describe_demonstration(demonstration) for demonstration in model.demonstrations]
    stored = DemonstrationModel(parse_demonstrations(tensors, description), model.encoder, model.direction_net)
    net = model.direction_net
    if net is not None:
        tensors |= add_prefix(NET_PREFIX, net.state_dict())
    manifest = {
        "architecture": ARCHITECTURE,
        "demonstrations": description,
        "direction_net": None if net is None else describe_net_config(net.config),
        "encoder": {"name": model.encoder.name, "sha256": model.encoder.weights_sha256},
        "facts": dict(metadata),
        MANIFEST_KEY: self_test_values(stored, stored.input_spec),
    }
    save_tensors(folder, tensors, manifest)


def load_demonstration_model(folder: Path | str) -> DemonstrationModel:
    """Load a model and its encoder.

    Raises:
        CheckpointError: When the checkpoint is damaged or of another kind; when the encoder is absent, or has other
            weights than those that the demonstrations were encoded with.
    """
    tensors, manifest = load_tensors(folder, ARCHITECTURE)
    message = f"{folder}: its manifest describes no demonstrations"
    with checkpoint_errors(message), limit_build(tensors, folder):
        demonstrations = parse_demonstrations(tensors, manifest["demonstrations"])
        name, expected = str(manifest["encoder"]["name"]), manifest["encoder"]["sha256"]
        described_net = manifest["direction_net"]
        net = None if described_net is None else ZeroShotNet(parse_net_config(described_net))
    if net is not None:
        load_into(net, strip_prefix(NET_PREFIX, tensors), folder)
    encoder = open_frozen_encoder(name)
    check_same_weights(folder, name, encoder.weights_sha256, expected)
    with checkpoint_errors(message):
        model = DemonstrationModel(demonstrations, encoder, net)
        score_noise(model)
    return model


def score_noise(model: DemonstrationModel) -> None:
    """Score two frames, which fails if the demonstrations have other shapes than the encoder's cells."""
    shape = (1, len(model.views), *model.encoder.image_size, 3)
    noise = np.random.default_rng(0).integers(0, 256, shape, np.uint8)
    views = Views(names=tuple(model.views), frames=noise)
    model.step(model.reset(views, [""]), views)


def stored_frame_rate(folder: Path | str) -> float | None:
    """Return `InputSpec.frame_rate` of the model in a checkpoint, which is not loaded; None for other architectures."""
    manifest = read_manifest(folder)
    if manifest["architecture"] != ARCHITECTURE:
        return None
    try:
        frame_rates = [float(description["frame_rate"]) for description in manifest["demonstrations"]]
        if not 0 < min(frame_rates) <= max(frame_rates) < math.inf:
            raise ValueError(f"frame_rate must be > 0, got {frame_rates}")
        return max(frame_rates)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise CheckpointError(f"{folder}: its manifest describes no demonstrations ({error!r})") from None


def pack_demonstration(demonstration: EncodedDemonstration) -> dict[str, Tensor]:
    """Return the tensors of a demonstration, by name."""
    tensors = {
        "progress": demonstration.progress,
        "duration": demonstration.duration,
        "subtasks": torch.from_numpy(demonstration.subtasks),
    }
    for v, view in enumerate(demonstration.views.values()):
        parts = {name: getattr(view, name).half() for name in CELL_TENSORS}
        parts |= {"motion": view.motion, "scales": torch.stack(view.scales)}
        parts |= {name: getattr(view.metric, name) for name in METRIC_TENSORS}
        parts |= {f"weights.{level}": weights for level, weights in enumerate(view.cell_weights)}
        tensors |= {f"{v}.{name}": tensor.contiguous() for name, tensor in parts.items()}
    return tensors


def describe_demonstration(demonstration: EncodedDemonstration) -> dict[str, Any]:
    """Return what a manifest says of a demonstration."""
    views = demonstration.views.items()
    return {
        "name": demonstration.name,
        "move_threshold": demonstration.move_threshold,
        "frame_weight": demonstration.frame_weight,
        "frame_rate": demonstration.frame_rate,
        "skill": demonstration.skill._asdict(),
        "views": [{"name": name, "scene_threshold": view.scene_threshold} for name, view in views],
    }


def parse_demonstrations(
    tensors: Mapping[str, Tensor], descriptions: list[dict[str, Any]]
) -> list[EncodedDemonstration]:
    """Return the demonstrations of a checkpoint; an error of any class where it is incomplete or wrong."""
    demonstrations = [
        EncodedDemonstration(
            name=str(description["name"]),
            views={
                str(view["name"]): _parse_view(tensors, f"{index}.{v}", float(view["scene_threshold"]))
                for v, view in enumerate(description["views"])
            },
            progress=tensors[f"{index}.progress"],
            subtasks=tensors[f"{index}.subtasks"].numpy(),
            duration=tensors[f"{index}.duration"],
            move_threshold=float(description["move_threshold"]),
            frame_weight=float(description["frame_weight"]),
            frame_rate=float(description["frame_rate"]),
            skill=DirectionSkill(float(description["skill"]["trust"]), float(description["skill"]["variance"])),
        )
        for index, description in enumerate(descriptions)
    ]
    for demonstration in demonstrations:
        check_demonstration(demonstration)
    return demonstrations


def _parse_view(tensors: Mapping[str, Tensor], prefix: str, scene_threshold: float) -> EncodedView:
    scale_frame, scale_scene, scale_changed = tensors[f"{prefix}.scales"]
    levels = sum(name.startswith(f"{prefix}.weights.") for name in tensors)
    return EncodedView(
        metric=CellMetric(**{name: tensors[f"{prefix}.{name}"] for name in METRIC_TENSORS}),
        cell_weights=tuple(tensors[f"{prefix}.weights.{level}"] for level in range(levels)),
        scales=(scale_frame, scale_scene, scale_changed),
        scene_threshold=scene_threshold,
        motion=tensors[f"{prefix}.motion"],
        **{name: tensors[f"{prefix}.{name}"].float() for name in CELL_TENSORS},
    )
