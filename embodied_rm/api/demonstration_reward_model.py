"""The reward model that `embodied_rm.from_demonstration` returns."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from embodied_rm.api.base_reward_model import BaseRewardModel
from embodied_rm.api.clip_output import ClipOutput, FrameInput
from embodied_rm.checkpoint_io import read_manifest
from embodied_rm.errors import UserError, lookup
from embodied_rm.models.encoders import resize_frames
from embodied_rm.models.in_context.demonstration_checkpoint import save_demonstration_model
from embodied_rm.models.in_context.demonstration_model import DemonstrationModel
from embodied_rm.models.in_context.encoded_demonstration import EncodingConfig, demonstration_stride
from embodied_rm.models.in_context.frozen_encoder import FrozenEncoder, open_frozen_encoder
from embodied_rm.models.in_context.quantized_encoder import quantize_encoder
from embodied_rm.models.pretrained_weights import EFFICIENTNET_LITE0
from embodied_rm.models.reward_model import RewardState
from embodied_rm.models.zero_shot.zero_shot_checkpoint import ARCHITECTURE, load_zero_shot_net
from embodied_rm.models.zero_shot.zero_shot_net import ZeroShotNet
from embodied_rm.paths import REAL_CHECKPOINT
from embodied_rm.rewards.reward_config import RewardConfig
from embodied_rm.types import Episode, RewardOutput, Views

if TYPE_CHECKING:
    from embodied_rm.data.source import EpisodeMeta, EpisodeSource

FLOAT32, INT8 = "float32", "int8"
DEMONSTRATED = "as demonstrated"  # the instruction of videos that have none: these models read no instruction


class DemonstrationRewardModel(BaseRewardModel[DemonstrationModel]):
    """A reward model from demonstrations, over a frozen encoder: score, evaluate, audit, save, push.

    Nothing is trained. It is a `RewardModel` too (`reset`, `step`), so that environments and services take it as it is.
    """

    def __init__(
        self,
        model: DemonstrationModel,
        metadata: Mapping[str, Any] | None = None,
        card: str | None = None,
        precision: str = FLOAT32,
    ) -> None:
        """
        Args:
            model: The model that predicts.
            metadata: What its checkpoint states about it, such as the hash of its demonstrations.
            card: Its model card, Markdown. None: it has none.
            precision: That of its encoder, "float32" or "int8".
        """
        super().__init__(model, metadata, card)
        self.precision = precision

    def score(  # type: ignore[override]  # the instruction is optional here
        self,
        frames: FrameInput,
        instruction: str = DEMONSTRATED,
        *,
        success_threshold: float | None = RewardConfig.success_threshold,
        success_patience: int = RewardConfig.success_patience,
    ) -> ClipOutput:
        """Score a clip frame by frame. A frame's output depends on no later frame.

        Args:
            frames: uint8 [T, H, W, 3], or a view name -> such an array. Any height and width. The views are those of
                the demonstration; a single one may have any name.
            instruction: Not read: the demonstration says what to do.
            success_threshold: Success probability from which a frame counts as done, in (0, 1]. None: 0.5.
            success_patience: Consecutive such frames that make the task done, at least 1.

        Returns:
            Arrays over T: progress in [0, 1], success probability, done, subtask index, uncertainty, ood.

        Raises:
            UserError: For frames, views or a rule that do not fit.
        """
        return super().score(
            frames, instruction, success_threshold=success_threshold, success_patience=success_patience
        )

    def _write_checkpoint(self, folder: Path) -> None:
        if self.precision != FLOAT32:  # a checkpoint has no encoder, and the one it names is not quantized
            raise UserError(f"a model of precision={self.precision} cannot be saved: make it with precision={FLOAT32}")
        save_demonstration_model(folder, self.model, self.metadata)

    def first_output(self, state: RewardState) -> RewardOutput:
        """Return the prediction for the first frames; see `ScoresFirstFrame`."""
        return self.model.first_output(state)

    def step_many(self, state: RewardState, views: Views) -> tuple[RewardOutput, RewardState]:
        """Score consecutive frames of one video; see `StepsMany`."""
        return self.model.step_many(state, views)


def from_demonstration(
    demonstration: Episode | str | Path | Sequence[Episode | str | Path],
    *,
    encoder: str = EFFICIENTNET_LITE0.name,
    precision: str = FLOAT32,
) -> DemonstrationRewardModel:
    """Make a reward model of one to five demonstrations of a task. Nothing is trained.

    Any cameras, sizes and rates. Progress is that of the demonstration's annotation; without one, it is elapsed time
    and change. Success means that a video has changed the scene as the demonstration did.

    Args:
        demonstration: An episode, a video file, a recording or another dataset, whose first episode is used; or
            several of these. They need no annotation and no instruction.
        encoder: A pretrained image encoder: "efficientnet_lite0" to "efficientnet_lite2", or "timm:" and a name, a
            file or a folder.
        precision: "float32"; or "int8", one and a half times as fast, with ranges from the demonstrations.

    Returns:
        The model.

    Raises:
        UserError: When a demonstration has failed, or views, their number or the precision do not fit.
        DataError: When a video cannot be read, or shows nothing that changes.
        CheckpointError: When the encoder's weights are absent; says what to install.
    """
    check_precision(precision)
    items = [demonstration] if isinstance(demonstration, Episode | str | Path) else list(demonstration)
    opened = open_frozen_encoder(encoder)
    episodes = [
        item if isinstance(item, Episode) else read_demonstration(Path(item), opened.image_size) for item in items
    ]
    return DemonstrationRewardModel(make_demonstration_model(episodes, opened, precision), precision=precision)


def check_precision(precision: str) -> None:
    """Raise `UserError` unless an encoder has this precision."""
    lookup({FLOAT32: None, INT8: None}, precision, "precision")


def make_demonstration_model(episodes: Sequence[Episode], encoder: FrozenEncoder, precision: str) -> DemonstrationModel:
    """Make the model of demonstrations over an encoder, of 8-bit integers if `precision` is int8."""
    if precision != FLOAT32 and episodes:
        videos = [resize_frames(video, encoder.image_size) for e in episodes for video in e.views.values()]
        encoder = quantize_encoder(encoder, np.concatenate(videos))
    return DemonstrationModel(episodes, encoder, open_direction_net(encoder))


def find_direction_checkpoint(encoder: FrozenEncoder, folder: Path = REAL_CHECKPOINT) -> Path | None:
    """Return a model of real robots, the bundled one by default; None where it was trained on another encoder."""
    if not folder.is_dir():
        return None
    manifest = read_manifest(folder)
    if manifest["architecture"] != ARCHITECTURE:
        return None
    return folder if manifest["encoder"]["sha256"] == encoder.weights_sha256 else None


def open_direction_net(encoder: FrozenEncoder, checkpoint: Path = REAL_CHECKPOINT) -> ZeroShotNet | None:
    """Return the nets of that model; None where there is none."""
    folder = find_direction_checkpoint(encoder, checkpoint)
    return None if folder is None else load_zero_shot_net(folder)[0]


def read_demonstration(path: Path, size: tuple[int, int]) -> Episode:
    """Read the first episode at a path, at an image size (height, width)."""
    # pyarrow and PyAV take time to import.
    from embodied_rm.data.dataset_path import resolve_dataset
    from embodied_rm.data.open_dataset import lacks_instruction, open_dataset
    from embodied_rm.data.source import find_index

    folder = resolve_dataset(path)
    source = open_dataset(folder, DEMONSTRATED if lacks_instruction(folder) else None)
    return read_thinned(source, find_index(source, 0), size)


def read_thinned(
    source: EpisodeSource, row: int, size: tuple[int, int], max_frames: int = EncodingConfig.max_frames
) -> Episode:
    """Read the frames of an episode that a demonstration needs, which bounds the memory of a long video."""
    return source.episode(row, size=size, stride=thinning_stride(source.meta[row], max_frames))


def thinning_stride(meta: EpisodeMeta, max_frames: int = EncodingConfig.max_frames) -> int:
    """Return n such that every n-th frame of a demonstration is decoded; each annotated subtask keeps a frame."""
    from embodied_rm.data.source import subtask_stride

    return subtask_stride(meta, demonstration_stride(meta.length, max_frames))
