"""What every reward model of the Python API does with frames and episodes."""

from __future__ import annotations

import tempfile
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from embodied_rm.api.clip_output import ClipOutput, FrameInput, clip_episode, done_frames
from embodied_rm.api.frame_scorer import FrameScorer
from embodied_rm.api.hub_upload import push_folder
from embodied_rm.errors import UserError
from embodied_rm.hub_checkpoint import HubCheckpoint
from embodied_rm.models.encoders import resize_frames
from embodied_rm.models.reward_model import Capabilities, Demonstration, DescribedRewardModel, InputSpec, RewardState
from embodied_rm.models.scoring import score_episodes
from embodied_rm.rewards.reward_config import RewardConfig
from embodied_rm.run_folder import NullReporter
from embodied_rm.types import Episode, RewardOutput, Views

if TYPE_CHECKING:
    from embodied_rm.audit import AuditResult

M = TypeVar("M", bound=DescribedRewardModel)


class BaseRewardModel(ABC, Generic[M]):
    """A reward model with everything around it: score, evaluate, audit, save, push to the hub.

    It is a `RewardModel` too (`reset`, `step`), so that environments and services take it as it is.
    """

    def __init__(self, model: M, metadata: Mapping[str, Any] | None = None, card: str | None = None) -> None:
        """
        Args:
            model: The model that predicts.
            metadata: What its checkpoint states about it, such as the hash of its data.
            card: Its model card, Markdown. None: it has none.
        """
        self.model = model
        self.metadata = dict(metadata or {})
        self.card = card

    @property
    def input_spec(self) -> InputSpec:
        """The views that the model knows, and the size at which it sees them."""
        return self.model.input_spec

    @property
    def capabilities(self) -> Capabilities:
        """The optional features of the model."""
        return self.model.capabilities

    def score(
        self,
        frames: FrameInput,
        instruction: str,
        *,
        goal: FrameInput | None = None,
        demonstration: Episode | None = None,
        success_threshold: float | None = RewardConfig.success_threshold,
        success_patience: int = RewardConfig.success_patience,
    ) -> ClipOutput:
        """Score a clip frame by frame. A frame's output depends on no later frame.

        Args:
            frames: uint8 [T, H, W, 3] of the model's first view, or a view name -> such an array. Any height and width.
            instruction: What the robot is asked to do. "a; then b" are two sub-goals, scored one after the other.
            goal: An image of the finished task, as `frames` with T = 1.
            demonstration: An episode of the task with subtasks or progress, which the model aligns the clip with.
            success_threshold: Success probability from which a frame counts as done, in (0, 1]. None: as fitted for the
                model, else 0.5.
            success_patience: Consecutive such frames that make the task done, at least 1.

        Returns:
            Arrays over T: progress in [0, 1], success probability, done, subtask index, uncertainty, ood.

        Raises:
            UserError: For frames, an instruction, views or a rule that do not fit.
        """
        RewardConfig(success_threshold=success_threshold, success_patience=success_patience)  # checks both
        known_views = self.input_spec.views
        episode = self._resize(clip_episode(frames, instruction, known_views))
        goals = None if goal is None else [self._resize(clip_episode(goal, instruction, known_views))]
        references = None if demonstration is None else [self._resize(demonstration)]
        (output,) = score_episodes(self.model, [episode], goals, references)
        # A demonstration decides success in another way than the head that the threshold was fitted for.
        capabilities = self.capabilities if demonstration is None else self.capabilities.without_calibration()
        threshold = capabilities.select_success_threshold(success_threshold)
        return ClipOutput(**vars(output), done=done_frames(output, threshold, success_patience))

    def frame_scorer(
        self,
        instruction: str,
        *,
        success_threshold: float | None = RewardConfig.success_threshold,
        success_patience: int = RewardConfig.success_patience,
    ) -> FrameScorer:
        """Return what scores an episode while it happens, such as the images of a robot's cameras.

            scorer = model.frame_scorer("open the drawer")
            for images in camera:  # {"front": uint8 [H, W, 3]}
                output = scorer.score(images)
                print(output.progress[0], output.done[0])

        Args:
            instruction: As in `score`.
            success_threshold: As in `score`.
            success_patience: As in `score`.

        Returns:
            A scorer of one episode, whose method `score` takes its next frame.

        Raises:
            UserError: For a rule that does not fit, or a model of complete videos.
        """
        RewardConfig(success_threshold=success_threshold, success_patience=success_patience)  # checks both
        threshold = self.capabilities.select_success_threshold(success_threshold)
        return FrameScorer(self.model, instruction, self._resize, threshold, success_patience)

    def evaluate(self, data: Iterable[Episode]) -> dict[str, object]:
        """Compare the model with annotated episodes, and with baselines that see no image.

        Args:
            data: Episodes with known progress: annotated subtasks, or a progress column.

        Returns:
            `{"reward_model": {metric: value}, "baselines": {name: {metric: value}}, "episodes": {...}}`. The page
            on metrics defines each one.

        Raises:
            DataError: Naming an episode whose progress is unknown.
        """
        from embodied_rm.evaluate import evaluate

        return evaluate(self.model, [self._resize(episode) for episode in data], NullReporter())

    def audit(self, data: Iterable[Episode]) -> list[AuditResult]:
        """Test the model with instructions, images and videos that are made to fool it.

        Args:
            data: Episodes whose success is known.

        Returns:
            One result per case: `case.name`, `value`, `num_trials`, `passed` (None: the data hold
                nothing for it, or the case is for comparison).

        Raises:
            DataError: When no episode's success is known.
        """
        from embodied_rm.audit import AuditRewardConfig, audit

        return audit(self.model, [self._resize(episode) for episode in data], AuditRewardConfig(), NullReporter())

    def save(self, folder: str | Path, *, overwrite: bool = False) -> None:
        """Write a checkpoint: safetensors and a JSON manifest with SHA-256 sums.

        Args:
            folder: Where to write it; `load_reward_model` and `checkpoint=` read it.
            overwrite: Replace the checkpoint that is in the folder.

        Raises:
            UserError: When the folder holds something and `overwrite` is not set, or the model cannot be saved.
            CheckpointError: When a weight is not finite.
        """
        check_overwrite(Path(folder), overwrite=overwrite)
        self._write_checkpoint(Path(folder))

    def push_to_hub(self, repo_id: str, *, private: bool | None = None, revision: str | None = None) -> HubCheckpoint:
        """Upload the model to the Hugging Face Hub: its checkpoint and its card, in one commit.

        A model without a card gets one that says what it is and how to load it.

        Args:
            repo_id: `owner/name` of the repository, which is created if it is absent.
            private: Whether a new repository is private. None: as the owner's settings say.
            revision: The branch, which is created if it is absent. None: main.

        Returns:
            The commit: `url`, `manifest_sha256`, and as `str()` the name that loads exactly this model.

        Raises:
            UserError: When the model cannot be saved, the name has another form, or the hub rejects the upload.
            CheckpointError: When a weight is not finite.
        """
        with tempfile.TemporaryDirectory() as folder:
            self._write_checkpoint(Path(folder))
            return push_folder(Path(folder), self.card, self.input_spec, repo_id, private=private, revision=revision)

    @abstractmethod
    def _write_checkpoint(self, folder: Path) -> None:
        """Write the checkpoint of the model."""

    def reset(
        self,
        views: Views,
        instructions: Sequence[str],
        goal: Views | None = None,
        reference: Demonstration | None = None,
    ) -> RewardState:
        """Start N episodes at their first frames; see `RewardModel.reset`."""
        return self.model.reset(views, instructions, goal, reference)

    def step(self, state: RewardState, views: Views) -> tuple[RewardOutput, RewardState]:
        """Score one new frame set per episode; see `RewardModel.step`."""
        return self.model.step(state, views)

    def _resize(self, episode: Episode) -> Episode:
        """The episode with the views that the model knows, at its image size."""
        views, size = self.input_spec.select_views(tuple(episode.views), episode.name), self.input_spec.image_size
        videos = {name: episode.views[name] for name in views}
        if size is not None:
            videos = {name: resize_frames(frames, size) for name, frames in videos.items()}
        return replace(episode, views=videos)


def check_overwrite(folder: Path, *, overwrite: bool) -> None:
    """Raise `UserError` if a folder holds something, unless it may be overwritten."""
    if folder.exists() and any(folder.iterdir()) and not overwrite:
        raise UserError(f"{folder} is not empty: name another folder, or pass overwrite=True")
