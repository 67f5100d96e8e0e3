"""How a reward model is trained."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from embodied_rm.errors import UserError
from embodied_rm.labels.schemes import select_schemes
from embodied_rm.logs.wandb_writer import check_wandb_project
from embodied_rm.models.potential_fusion import FusionKind
from embodied_rm.train.augment import IMAGE_AUGMENTATIONS, AugmentConfig
from embodied_rm.train.forward import Precision


@dataclass(frozen=True, kw_only=True)
class TrainConfig:
    """How a reward model is trained."""

    tower: str = "patch_tower_tiny"
    """A timm image tower, a pretrained open_clip model (local-dir:<folder>, hf-hub:<owner>/<name>), or one of
    `transformers` (transformers:<folder>)."""
    text_tower: str | None = None
    """What reads instructions, where the tower of `transformers` does not: transformers:<folder>."""
    train_tower: bool = True
    """Whether image and text tower learn too; a large pretrained one may be left as it is."""
    lora_rank: int = 0
    """Rank of what the attention of an image tower learns that does not learn otherwise; 0: nothing."""
    feature_cache_dir: Path | None = None
    """Folder in which it is kept what a tower that does not learn sees in each image; None: it looks every time."""
    image_size: tuple[int, int] = (64, 64)
    """Height and width of the images the tower sees."""
    label_schemes: tuple[str, ...] = ("hops",)
    """Labeling schemes whose objectives are summed; see `embodied_rm.labels.schemes`."""
    change_point_tower: str | None = None
    """Frozen tower, named as in `tower`, in whose features `discovered` finds steps; None: in pixels, coarsely."""
    preference_model: Path | None = None
    """Checkpoint of a reward model whose preferences `preferences` teaches; None: those of the true progress."""
    fusion: FusionKind = "mean"
    steps: int = 1200
    max_seconds: float | None = None
    """Time budget; the schedule then follows the clock and `updates` is not used."""
    batch_size: int = 16
    """Episodes an update."""
    frames_per_episode: int = 8
    """Moments of each; all ordered pairs are supervised."""
    gradient_accumulation_steps: int = 1
    """Parts in which a process judges its share of a batch, one after the other: less memory for more time."""
    precision: Precision = "float32"
    """In which the net judges while it learns; weights, losses and optimizer are float32, and so is the checkpoint."""
    learning_rate: float = 2e-3
    weight_decay: float = 0.05
    augment: AugmentConfig = field(default_factory=AugmentConfig)
    checkpoint_seconds: float = 60.0
    """Seconds between two saves of the training state, from which an interrupted run resumes."""
    wandb_project: str | None = None
    """Project of Weights & Biases that is told every update too; None: none."""
    seed: int = 0

    def __post_init__(self) -> None:
        select_schemes(self.label_schemes)
        check_wandb_project(self.wandb_project)
        for key, scheme in (("change_point_tower", "discovered"), ("preference_model", "preferences")):
            if getattr(self, key) is not None and scheme not in self.label_schemes:
                raise UserError(f"{key} is for labels=[{scheme}], got labels=[{', '.join(self.label_schemes)}]")
        if self.lora_rank < 0 or (self.lora_rank and self.train_tower):
            raise UserError(f"lora is a rank > 0 beside a tower with train_tower=false, or 0, got {self.lora_rank}")
        if self.feature_cache_dir is not None:
            check_feature_cache(self)
        for name in ("steps", "batch_size", "gradient_accumulation_steps", "learning_rate", "checkpoint_seconds"):
            if not getattr(self, name) > 0:
                raise UserError(f"{name} must be > 0, got {getattr(self, name)}")
        if self.max_seconds is not None and not self.max_seconds > 0:
            raise UserError(f"max_seconds must be > 0 or null, got {self.max_seconds}")
        if self.frames_per_episode < 3:
            raise UserError(f"moments must be >= 3, got {self.frames_per_episode}")


def check_feature_cache(config: TrainConfig) -> None:
    """Raises `UserError` for what cannot be learned from kept maps: a tower that learns, images that are changed."""
    if config.train_tower or config.lora_rank:
        raise UserError("cache keeps what a tower sees that does not learn: add train_tower=false, and no lora")
    augmentations = [name for name in IMAGE_AUGMENTATIONS if getattr(config.augment, name)]
    if augmentations:
        zeros = " ".join(f"augment.{name}=0" for name in augmentations)
        raise UserError(f"cache keeps what the tower sees in the images as they are, none of them changed: add {zeros}")


def to_json_dict(config: TrainConfig) -> dict[str, Any]:
    """The configuration as JSON gives it back."""
    return json.loads(json.dumps(asdict(config), default=str))
