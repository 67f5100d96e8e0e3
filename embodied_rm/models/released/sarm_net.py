"""The two transformers of SARM and their files, in the layout of LeRobot."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, fields
from itertools import accumulate
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from embodied_rm.build_limit import limit_build
from embodied_rm.errors import CheckpointError
from embodied_rm.models.load_pretrained import checkpoint_errors, load_weights, read_weights
from embodied_rm.text_file import read_text

CONFIG_FILE, WEIGHTS_FILE = "config.json", "model.safetensors"
CONFIG_TYPE = "sarm"
SCHEMES = ("sparse", "dense")
"""Annotations that a model has outputs for. The sparse ones are read, LeRobot's default."""
DUAL_MODE = "dual"
"""The one annotation mode with several sparse stages; the others have one that is the whole task."""


@dataclass(frozen=True, kw_only=True)
class SarmConfig:
    """The fields of LeRobot's config.json that the scores depend on."""

    annotation_mode: str
    n_obs_steps: int  # frames around the one that is scored: half of them before it, half after it
    frame_gap: int  # frames between two of them
    image_key: str
    image_dim: int
    text_dim: int
    hidden_dim: int
    num_heads: int
    num_layers: int
    max_state_dim: int
    num_sparse_stages: int
    sparse_temporal_proportions: list[float] | None  # share of each stage in an episode. None: equal.
    num_dense_stages: int | None

    @property
    def num_stages(self) -> dict[str, int]:
        """Scheme -> number of stages."""
        sparse = self.num_sparse_stages if self.annotation_mode == DUAL_MODE else 1
        return dict(zip(SCHEMES, (sparse, self.num_dense_stages or sparse), strict=True))

    def stage_bounds(self) -> list[float]:
        """Return the progress at which each sparse stage begins, and 1."""
        count = self.num_stages["sparse"]
        shares = self.sparse_temporal_proportions if count > 1 else None
        shares = shares or [1.0] * count
        if len(shares) != count or not all(share >= 0 for share in shares) or not sum(shares) > 0:
            raise CheckpointError(f"sparse_temporal_proportions must be {count} numbers >= 0, got {shares}")
        return [0.0, *(end / sum(shares) for end in accumulate(shares[:-1])), 1.0]


class SarmTransformer(nn.Module):
    """Causal transformer over streams of one token per frame: image, instruction, state and others."""

    def __init__(self, config: SarmConfig, num_streams: int, num_outputs: Mapping[str, int]) -> None:
        super().__init__()
        width = config.hidden_dim
        self.lang_proj, self.visual_proj = nn.Linear(config.text_dim, width), nn.Linear(config.image_dim, width)
        self.state_proj = nn.Linear(config.max_state_dim, width)
        layer = nn.TransformerEncoderLayer(width, config.num_heads, 4 * width, batch_first=True)
        self.transformer = nn.TransformerEncoder(layer, config.num_layers, enable_nested_tensor=False)
        self.first_pos = nn.Parameter(torch.zeros(1, width))
        fusion_dim = num_streams * width
        self.fusion_backbone = nn.Sequential(nn.LayerNorm(fusion_dim), nn.Linear(fusion_dim, width), nn.ReLU())
        self.heads = nn.ModuleDict({scheme: nn.Linear(width, outputs) for scheme, outputs in num_outputs.items()})

    def forward(self, images: Tensor, text: Tensor, states: Tensor, *other_streams: Tensor) -> Tensor:
        """Return the sparse outputs, [N, T, outputs].

        Args:
            images: Embeddings, [N, T, image_dim].
            text: Embeddings, [N, text_dim].
            states: [N, T, max_state_dim].
            other_streams: Tokens, [N, T, hidden_dim].
        """
        frames = self.visual_proj(images)
        frames = torch.cat([frames[:, :1] + self.first_pos, frames[:, 1:]], dim=1)
        language = self.lang_proj(text)[:, None].expand_as(frames)
        streams = torch.stack([frames, language, self.state_proj(states), *other_streams], dim=1)
        tokens = streams.flatten(1, 2)
        mask = nn.Transformer.generate_square_subsequent_mask(tokens.shape[1], device=tokens.device)
        hidden = self.transformer(tokens, mask=mask, is_causal=True).view(streams.shape)
        fused = self.fusion_backbone(hidden.transpose(1, 2).flatten(2))
        return self.heads["sparse"](fused)


class SarmNet(nn.Module):
    """Progress in [0, 1] of every frame of a window: the stage, and the progress within it."""

    stage_bounds: Tensor

    def __init__(self, config: SarmConfig) -> None:
        super().__init__()
        self.config = config
        self.stage_model = SarmTransformer(config, 3, config.num_stages)
        self.subtask_model = SarmTransformer(config, 4, dict.fromkeys(SCHEMES, 1))
        self.register_buffer("stage_bounds", torch.tensor(config.stage_bounds()), persistent=False)

    def forward(self, images: Tensor, text: Tensor) -> Tensor:
        """Return the progress [N, T] of images [N, T, image_dim] and instructions [N, text_dim], without states.

        Where a dataset has no states, LeRobot's inference gives zeros too, which is their mean.
        """
        states = images.new_zeros(*images.shape[:2], self.config.max_state_dim)
        stages = self.stage_model(images, text, states).argmax(dim=-1)
        width = max(self.config.hidden_dim, self.config.num_stages["sparse"])
        stage_tokens = nn.functional.one_hot(stages, width)[..., : self.config.hidden_dim].to(images.dtype)
        share = self.subtask_model(images, text, states, stage_tokens)[..., 0].sigmoid()
        starts, ends = self.stage_bounds[stages], self.stage_bounds[stages + 1]
        return starts + share * (ends - starts)


def read_config(path: Path) -> SarmConfig:
    """Read a config.json of LeRobot; `CheckpointError` if it is not one of SARM."""
    with checkpoint_errors(f"{path}: not the configuration of a SARM"):
        settings: dict[str, Any] = json.loads(read_text(path))
        if (config_type := settings.get("type")) != CONFIG_TYPE:
            raise CheckpointError(f"{path}: its type is {config_type!r}, not {CONFIG_TYPE!r}")
        config = SarmConfig(**{field.name: settings[field.name] for field in fields(SarmConfig)})
        if config.n_obs_steps < 0 or config.frame_gap < 1:
            raise ValueError(f"n_obs_steps is {config.n_obs_steps} and frame_gap {config.frame_gap}")
        if config.hidden_dim % config.num_heads:
            raise ValueError(f"hidden_dim {config.hidden_dim} is no multiple of num_heads {config.num_heads}")
    return config


def load_sarm(folder: Path) -> SarmNet:
    """Load the model of a folder; `CheckpointError` if a file is not as released."""
    config = read_config(folder / CONFIG_FILE)
    weights = read_weights([folder / WEIGHTS_FILE])
    with checkpoint_errors(f"{folder}: its network cannot be built"), limit_build(weights, folder):
        net = SarmNet(config)
    load_weights(net, weights, f"{folder}: not the weights of this SARM")
    return net
