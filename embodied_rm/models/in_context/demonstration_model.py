"""`DemonstrationModel`: where a video is along one to five demonstrations, and whether it ends as they do."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import torch
from torch import Tensor

from embodied_rm.errors import UserError
from embodied_rm.labels.targets import check_demonstration
from embodied_rm.models.in_context.alignment import DRIFT, advance_coverage, transition_probs, update_belief
from embodied_rm.models.in_context.appearance import advance_still_scene, make_appearance
from embodied_rm.models.in_context.demonstration_state import DemonstrationState
from embodied_rm.models.in_context.direction import (
    Transitions,
    advance_direction,
    blend_progress,
    mean_skill,
    net_progress,
)
from embodied_rm.models.in_context.encoded_demonstration import (
    CHANGE_WEIGHT,
    SCENE_WEIGHT,
    EncodedDemonstration,
    encode_demonstration,
)
from embodied_rm.models.in_context.frozen_encoder import FrozenEncoder, open_frozen_encoder
from embodied_rm.models.in_context.success import NEVER, EndEvidence, success_score
from embodied_rm.models.in_context.visible_frames import (
    FrameDistances,
    Movement,
    VisibleFrames,
    change_of_cells,
    change_of_views,
)
from embodied_rm.models.reward_model import (
    Capabilities,
    Demonstration,
    InputSpec,
    RewardState,
    check_reset_by_video,
    check_step,
)
from embodied_rm.models.scoring import concat_outputs
from embodied_rm.models.view_fusion import visible_views
from embodied_rm.models.zero_shot.progress_gru import GRID, grid_cells
from embodied_rm.models.zero_shot.tracked_views import blank_views
from embodied_rm.models.zero_shot.zero_shot_net import ZeroShotNet
from embodied_rm.types import BoolArray, Episode, RewardOutput, Views

MAX_DEMONSTRATIONS = 5
OOD_DISTANCE = 2.0  # distance to the nearest keyframe, in mean distances of two keyframes, of frames that look foreign


class DemonstrationModel:
    """A `RewardModel` from demonstrations, over a frozen encoder. It reads no instruction, and nothing is trained.

    All rows are aligned with the same demonstrations. A video may have any size, rate and length, and starts anywhere:
    its first frame has the progress of the keyframes that it looks like.
    """

    capabilities = Capabilities(serializable_state=True)

    def __init__(
        self,
        demonstrations: Sequence[Episode | EncodedDemonstration],
        encoder: FrozenEncoder | None = None,
        direction_net: ZeroShotNet | None = None,
    ) -> None:
        """
        Args:
            demonstrations: One to five successful episodes with the same views; progress is that of their annotation,
                or of elapsed time and change. Those that are encoded already were encoded by the same encoder.
            encoder: The image encoder; None: `efficientnet_lite0`.
            direction_net: Nets over the same encoder that see whether a video comes forward. They count as far as they
                order the demonstrations. None: the alignment alone.

        Raises:
            UserError: When their number or their views are wrong, or one has failed.
            DataError: When one of them shows nothing.
            CheckpointError: When the encoder's weights are absent.
        """
        check_demonstrations(demonstrations)
        opened = self.encoder = open_frozen_encoder() if encoder is None else encoder
        self.demonstrations = [
            encode_demonstration(item, opened, direction_net=direction_net) if isinstance(item, Episode) else item
            for item in demonstrations
        ]
        self.views = moving_views(self.demonstrations)
        self.direction_net = None if direction_net is None else direction_net.eval()
        self._skill = mean_skill([d.skill for d in self.demonstrations])
        self._trusted_net = self.direction_net if self._skill.trust > 0 else None  # without trust it changes nothing
        self._lengths = [len(demonstration) for demonstration in self.demonstrations]
        self._transitions = Transitions(*(transition_probs(self._lengths, drift) for drift in (0.0, DRIFT, -DRIFT)))
        self._progress = torch.cat([demonstration.progress for demonstration in self.demonstrations])
        self._subtasks = torch.from_numpy(np.concatenate([d.subtasks for d in self.demonstrations]))
        self._prior = torch.cat([d.duration for d in self.demonstrations]) / len(self.demonstrations)
        self._move_threshold = min(d.move_threshold for d in self.demonstrations)
        self._scene_thresholds = torch.tensor(
            [min(d.views[name].scene_threshold for d in self.demonstrations) for name in self.views]
        )
        frame_weight = sum(d.frame_weight for d in self.demonstrations) / len(self.demonstrations)
        self._distance_weights = torch.tensor([frame_weight, SCENE_WEIGHT, CHANGE_WEIGHT])

    @property
    def input_spec(self) -> InputSpec:
        """The views of the demonstrations, at the encoder's size; any views if the demonstrations have one."""
        return InputSpec(
            views=None if len(self.views) == 1 else self.views,
            image_size=self.encoder.image_size,
            frame_rate=max(demonstration.frame_rate for demonstration in self.demonstrations),
        )

    def reset(
        self,
        views: Views,
        instructions: Sequence[str],
        goal: Views | None = None,
        reference: Demonstration | None = None,
    ) -> DemonstrationState:
        """Start N videos at their first frames. Goal images and references are refused.

        The state holds the prediction for the first frames, see `first_output`.
        """
        check_reset_by_video(len(views), instructions, goal, reference)
        state = self._empty_state(len(views))
        return self.step(state, views)[1]

    def first_output(self, state: RewardState) -> RewardOutput:
        """Return the prediction for the first frames, from the state that `reset` returned."""
        assert isinstance(state, DemonstrationState)
        return to_output(state)

    def step(self, state: RewardState, views: Views) -> tuple[RewardOutput, DemonstrationState]:
        """Score one new frame per row. A row without a visible view is invalid and carries its last prediction."""
        assert isinstance(state, DemonstrationState)
        check_step(len(state), len(views))
        visible = self._visible(views)
        images = self._encode(views, visible)
        state, moved = self._perceive(state, images, torch.from_numpy(visible))
        distances = self._distances(images, state.scene, len(visible))
        state = self._align(state, distances, moved)
        return to_output(state), state

    def step_many(self, state: RewardState, views: Views) -> tuple[RewardOutput, RewardState]:
        """Score consecutive frames of one video, one row per frame; `state` has one row.

        The distances of all frames are computed at once, which is faster than frame by frame.
        """
        assert isinstance(state, DemonstrationState) and len(state) == 1
        visible = self._visible(views)
        images = self._encode(views, visible)
        perceived = []
        for t in range(len(views)):
            state, moved = self._perceive(state, images.at(t), torch.from_numpy(visible[t : t + 1]))
            perceived.append((state, moved))
        scenes = torch.cat([frame_state.scene for frame_state, _ in perceived])
        distances = self._distances(images, scenes, len(views))
        outputs = []
        previous = perceived[0][0]
        for t, (frame_state, moved) in enumerate(perceived):
            previous = self._align(frame_state.with_predictions_of(previous), distances.at(t), moved)
            outputs.append(to_output(previous))
        return concat_outputs(outputs), previous

    # Perception

    def _empty_state(self, num_rows: int) -> DemonstrationState:
        cells = next(iter(self.demonstrations[0].views.values())).coarse.shape[1:]
        blank = torch.zeros(num_rows, len(self.views), *cells)
        zeros = torch.zeros(num_rows)
        return DemonstrationState(
            belief=self._prior.expand(num_rows, -1).clone(),
            coverage=torch.zeros(num_rows, len(self._prior)),
            moved_from=blank,
            scene_from=blank,
            scene=blank,
            forward_from=zeros,
            **blank_views(self._trusted_net, num_rows, len(self.views)),
            valid=torch.zeros(num_rows, dtype=torch.bool),
            progress=zeros,
            uncertainty=zeros,
            success=zeros,
            subtask=zeros.long(),
            ood=zeros,
        )

    def _columns(self, names: Sequence[str]) -> list[int]:
        """Column of each of the demonstrations' views among these; -1 where the video lacks it.

        `UserError` if the video has none of them.
        """
        if len(self.views) == len(names) == 1:
            return [0]
        columns = [names.index(name) if name in names else -1 for name in self.views]
        if max(columns) < 0:
            raise UserError(f"the demonstration has the views {', '.join(self.views)}, the video {', '.join(names)}")
        return columns

    def _visible(self, views: Views) -> BoolArray:
        """bool [N, V] of the demonstrations' views."""
        columns = np.array(self._columns(views.names))
        visible: BoolArray = visible_views(views)[:, columns] & (columns >= 0)
        return visible

    def _encode(self, views: Views, visible: BoolArray) -> VisibleFrames:
        """Encode the visible images of the demonstrations' views."""
        rows, indices = np.nonzero(visible)
        images = np.asarray(views.frames[rows, np.array(self._columns(views.names))[indices]])
        if not len(rows):
            images = np.zeros((1, *self.encoder.image_size, 3), np.uint8)  # encoded for its shape only
        appearance = make_appearance(self.encoder.encode(images)).select(slice(len(rows)))
        grid = None if self._trusted_net is None else grid_cells(list(appearance.fine), GRID)
        return VisibleFrames(appearance, grid, torch.from_numpy(rows), torch.from_numpy(indices))

    # Alignment

    def _perceive(
        self, state: DemonstrationState, images: VisibleFrames, visible: Tensor
    ) -> tuple[DemonstrationState, Movement]:
        """Take one frame per row into the memories of the state, and return which rows have moved."""
        coarse = state.scene_from.clone()
        coarse[images.row, images.view] = images.appearance.coarse
        fresh = (visible & ~state.seen)[:, :, None, None]
        state = replace(
            state,
            scene=torch.where(fresh, coarse, state.scene),
            scene_from=torch.where(fresh, coarse, state.scene_from),
            moved_from=torch.where(fresh, coarse, state.moved_from),
        )
        if self._trusted_net is not None:
            assert images.grid is not None
            state = advance_direction(self._trusted_net, state, images.grid, images.row, images.view)
        first = ~state.seen.any(dim=1) & visible.any(dim=1)
        moved = first | (change_of_views(state.moved_from, coarse, visible) > self._move_threshold)
        changed = change_of_cells(state.scene_from, coarse) > self._scene_thresholds
        left = (moved[:, None] & visible)[:, :, None, None]
        updated = (changed & visible)[:, :, None, None]
        state = replace(
            state,
            scene=torch.where(updated, self._advance_scene(state, coarse), state.scene),
            scene_from=torch.where(updated, coarse, state.scene_from),
            moved_from=torch.where(left, coarse, state.moved_from),
            seen=state.seen | visible,
            valid=visible.any(dim=1),
        )
        return state, Movement(first=first, moved=moved)

    def _align(self, state: DemonstrationState, distances: FrameDistances, movement: Movement) -> DemonstrationState:
        """Move the belief of the rows that have moved, and predict."""
        forward = state.mean_of_seen(state.forward)
        direction = self._skill.trust * (forward - state.forward_from).clamp(-1, 1)
        predicted = self._transitions.predict(state.belief, direction)
        predicted = torch.where(movement.first[:, None], state.belief, predicted)
        log_likelihood = -(self._distance_weights[:, None, None] * distances.total).sum(dim=0)
        belief = update_belief(predicted, log_likelihood)
        coverage = advance_coverage(state.coverage, belief, self._lengths)
        state = state.update_rows(movement.moved, belief=belief, coverage=coverage, forward_from=forward)
        return state.update_rows(state.valid, **self._predict(state, distances))

    def _advance_scene(self, state: DemonstrationState, coarse: Tensor) -> Tensor:
        """Scene of all views after the change since its last update, float [N, V, cells, C]."""
        scenes = []
        for v, name in enumerate(self.views):
            motion = torch.stack([d.views[name].motion for d in self.demonstrations]).mean()
            scenes.append(advance_still_scene(state.scene[:, v], state.scene_from[:, v], coarse[:, v], motion))
        return torch.stack(scenes, dim=1)

    def _distances(self, images: VisibleFrames, scene: Tensor, num_rows: int) -> FrameDistances:
        """Distances of N frames to all keyframes, summed over the visible views."""
        total = torch.zeros(3, num_rows, len(self._prior))
        count = torch.zeros(num_rows)
        for v, name in enumerate(self.views):
            chosen = images.view == v
            rows = images.row[chosen]
            if not len(rows):
                continue
            count[rows] += 1
            frames, scenes = images.appearance.select(chosen), scene[rows, v]
            parts = [d.views[name].distances(frames, scenes) for d in self.demonstrations]
            total[:, rows] += torch.cat(parts, dim=2)
        return FrameDistances(total, total / count.clamp_min(1)[:, None])

    # Prediction

    def _predict(self, state: DemonstrationState, distances: FrameDistances) -> dict[str, Tensor]:
        """Fields of the state that are predictions, [N] each."""
        progress = state.belief @ self._progress
        variance = state.belief @ self._progress.square() - progress.square()
        variance = variance.clamp_min(0)
        if self._trusted_net is not None:
            progress = blend_progress(progress, variance, net_progress(state), self._skill)
        progress = progress.clamp(0, 1)
        return {
            "progress": progress,
            "uncertainty": variance.sqrt(),
            "success": progress * self._end_state(state, distances),
            "subtask": self._subtasks[state.belief.argmax(dim=1)],
            "ood": distances.mean[0].amin(dim=1) / OOD_DISTANCE,
        }

    def _end_state(self, state: DemonstrationState, distances: FrameDistances) -> Tensor:
        """Probability [N] that the scene is as at the end of a demonstration, the largest over the demonstrations."""
        best = torch.full((len(state),), NEVER)
        changed = distances.mean[2].split(self._lengths, dim=1)
        coverages = state.coverage.split(self._lengths, dim=1)
        for demonstration, distance, coverage in zip(self.demonstrations, changed, coverages, strict=True):
            ends = demonstration.num_end_frames
            evidence = EndEvidence(
                to_start=distance[:, :ends].mean(dim=1),
                to_end=distance[:, -ends:].mean(dim=1),
                coverage=coverage.amax(dim=1),
            )
            best = torch.maximum(best, success_score(evidence))
        return best


def to_output(state: DemonstrationState) -> RewardOutput:
    """Return the prediction that a state holds; invalid rows carry the last one."""
    valid = state.valid.numpy().copy()
    return RewardOutput(
        progress=state.potential(),
        valid=valid,
        subtask=state.subtask.numpy().copy(),
        success=state.success.numpy().copy(),
        uncertainty=np.where(valid, state.uncertainty.numpy(), np.float32(0)),
        ood=np.where(valid, state.ood.numpy(), np.float32(np.nan)),
    )


def check_demonstrations(demonstrations: Sequence[Episode | EncodedDemonstration]) -> None:
    """Raise `UserError` unless there are one to five demonstrations with the same views, none of which has failed."""
    if not 1 <= len(demonstrations) <= MAX_DEMONSTRATIONS:
        raise UserError(f"1 to {MAX_DEMONSTRATIONS} demonstrations can be aligned with, got {len(demonstrations)}")
    views = demonstrations[0].views
    for item in demonstrations:
        if set(item.views) != set(views) and isinstance(item, Episode):
            raise UserError(
                f"{item.name} has the views {', '.join(item.views)}; the first demonstration has {', '.join(views)}: "
                "name the same cameras alike"
            )
        if isinstance(item, Episode):
            check_demonstration(item)


def moving_views(demonstrations: Sequence[EncodedDemonstration]) -> tuple[str, ...]:
    """Return the views in which something changes in every demonstration; `UserError` if there are none."""
    first, *others = demonstrations
    views = tuple(name for name in first.views if all(name in other.views for other in others))
    if not views:
        names = "; ".join(f"{d.name}: {', '.join(d.views)}" for d in demonstrations)
        raise UserError(f"the demonstrations have no view in common in which something changes: {names}")
    return views
