"""Configuration of reward model training."""

import json
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from embodied_rm.errors import UserError, check_minimum
from embodied_rm.labels.schemes import select_schemes
from embodied_rm.logs.wandb_writer import check_wandb_project
from embodied_rm.models.potential_fusion import FusionKind
from embodied_rm.training.augment import IMAGE_AUGMENTATIONS, AugmentConfig
from embodied_rm.training.forward import Precision


@dataclass(frozen=True, kw_only=True)
class TrainConfig:
    """Configuration of reward model training."""

    encoder: str = "patch_tower_tiny"
    """A pretrained encoder: efficientnet_lite0 to efficientnet_lite2, timm:<name, file or folder>,
    transformers:<folder>, or one of open_clip (local-dir:<folder>, hf-hub:<owner>/<name>). Else an image tower that
    starts from random weights."""
    text_encoder: str | None = None  # minilm or transformers:<folder>, for an encoder without one
    train_encoder: bool = True  # whether to train the image encoder; a pretrained one may stay frozen
    train_text_encoder: bool | None = None  # whether to train the text encoder; None: as the image encoder
    pretrained_lr_scale: float = 0.1
    """Learning rate of a pretrained image encoder that is trained, as a fraction of `learning_rate`."""
    lora_rank: int = 0  # LoRA rank of the attention of a frozen image tower; 0: none
    feature_cache_dir: Path | None = None  # cache folder for the image features of a frozen tower; None: no cache
    image_size: tuple[int, int] = (64, 64)  # height and width of the images of the tower
    label_schemes: tuple[str, ...] = ("hops",)
    """Labeling schemes whose objectives are summed; see `embodied_rm.labels.schemes`."""
    change_point_encoder: str | None = None
    """Frozen tower, named as in `encoder`, whose features `change_points` uses; None: downsampled pixels."""
    preference_model: Path | None = None
    """Checkpoint of a reward model for the scheme `preferences`; None: preferences of the true progress."""
    comparisons: Path | None = None  # table of `embodied-rm prefer`, or its run folder, for the scheme `compared`
    fusion: FusionKind = "mean"
    steps: int = 1200  # number of optimizer steps
    max_seconds: float | None = None  # time budget, which replaces `steps`; the schedule then follows the clock
    batch_size: int = 16  # episodes per step
    frames_per_episode: int = 8  # sampled frames per episode; all ordered pairs are supervised
    gradient_accumulation_steps: int = 1  # microbatches per process: less memory, more time, the same gradient
    precision: Precision = "float32"
    """Precision of the forward pass; weights, losses, optimizer and checkpoint are float32."""
    learning_rate: float = 2e-3
    weight_decay: float = 0.05
    augment: AugmentConfig = field(default_factory=AugmentConfig)
    checkpoint_seconds: float = 60.0
    """Seconds between two saves of the training state, from which an interrupted run resumes."""
    wandb_project: str | None = None  # Weights & Biases project; None: none
    seed: int = 0

    def __post_init__(self) -> None:
        select_schemes(self.label_schemes)
        check_wandb_project(self.wandb_project)
        for key, scheme in (("change_point_encoder", "change_points"), ("preference_model", "preferences")):
            if getattr(self, key) is not None and scheme not in self.label_schemes:
                schemes = ", ".join(self.label_schemes)
                raise UserError(f"{key} needs label_schemes=[{scheme}], got label_schemes=[{schemes}]")
        if (self.comparisons is None) == ("compared" in self.label_schemes):
            raise UserError(
                "label_schemes=[compared] learns the table in comparisons=<run folder of embodied-rm prefer>, got "
                f"label_schemes=[{', '.join(self.label_schemes)}] and comparisons={self.comparisons}"
            )
        if self.lora_rank < 0 or (self.lora_rank and self.train_encoder):
            raise UserError(f"lora_rank must be 0, or > 0 with train_encoder=false, got {self.lora_rank}")
        if self.feature_cache_dir is not None:
            check_feature_cache(self)
        for name in (
            "steps",
            "batch_size",
            "gradient_accumulation_steps",
            "learning_rate",
            "pretrained_lr_scale",
            "checkpoint_seconds",
        ):
            if not getattr(self, name) > 0:
                raise UserError(f"{name} must be > 0, got {getattr(self, name)}")
        if self.max_seconds is not None and not self.max_seconds > 0:
            raise UserError(f"max_seconds must be > 0 or null, got {self.max_seconds}")
        check_minimum(self, 3, "frames_per_episode")


def check_feature_cache(config: TrainConfig) -> None:
    """Raise `UserError` if the tower is trained or images are augmented: cached features permit neither."""
    if config.train_encoder or config.lora_rank:
        raise UserError("feature_cache_dir needs a frozen tower: set train_encoder=false and lora_rank=0")
    augmentations = [name for name in IMAGE_AUGMENTATIONS if getattr(config.augment, name)]
    if augmentations:
        zeros = " ".join(f"augment.{name}=0" for name in augmentations)
        raise UserError(f"feature_cache_dir holds features of images without augmentation: add {zeros}")


def to_json_dict(config: TrainConfig) -> dict[str, Any]:
    """Convert a configuration to the values that JSON returns after a round trip."""
    return json.loads(json.dumps(asdict(config), default=str))
