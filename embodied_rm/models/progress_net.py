"""`ProgressNet`: views and an instruction -> progress and subtask, causally, with one encoder pass per frame."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace

import numpy as np
import torch
from torch import Tensor, nn

from embodied_rm.errors import UserError, unknown_name_message
from embodied_rm.models import potential_fusion
from embodied_rm.models.demo_alignment import Alignment, forward_filter_step, sum_neighbors
from embodied_rm.models.encoders import Encoder, EncoderConfig, small_encoder_config
from embodied_rm.models.heads import HeadOutputs, Heads
from embodied_rm.models.image_batch import ImageBatch
from embodied_rm.models.ood import EmbeddingDistribution, inflate_uncertainty
from embodied_rm.models.progress_net_state import ProgressNetState
from embodied_rm.models.reward_model import Capabilities, Demonstration, InputSpec, RewardState, check_reset, check_step
from embodied_rm.models.view_fusion import (
    MIN_VIEWS_LEAVE_ONE_OUT,
    ViewFusion,
    ViewToken,
    leave_one_out_success,
    visible_views,
)
from embodied_rm.types import Episode, RewardOutput, Views

BLANK_HINT = "; an image of a single color counts as absent"
FRAMES_PER_BLOCK = 64  # frames of an episode that are embedded in one batch, to bound the memory
MAX_VIEWS = 64  # of a net: success is predicted once more without each of them
IMAGES_PER_CHUNK = 384  # images per batch of the image tower: larger batches exceed the CPU caches and more memory


@dataclass(frozen=True, kw_only=True)
class NetConfig:
    """The architecture of a `ProgressNet`, stored in its checkpoint."""

    views: tuple[str, ...]  # Names of the known views. A prediction needs at least one of them.
    encoder: EncoderConfig = field(default_factory=lambda: small_encoder_config("patch_tower_tiny", (64, 64)))
    width: int = 128  # length of tokens and embeddings
    num_layers: int = 2  # transformer layers that fuse views and instruction
    channels: int = 16  # channels that each view's feature map is reduced to
    grid_size: tuple[int, int] = (8, 8)
    """Height and width, in cells, that each feature map is pooled to; a smaller map is kept."""
    max_subtasks: int = 16  # largest number of subtasks of a task
    fusion: potential_fusion.FusionKind = "mean"  # how the perspectives are fused to one potential
    median_ood: float | None = None
    """Median OOD score of the held-out episodes of `calibrate`. None: no distribution of embeddings, and no OOD scores.
    """
    interval_scale: float | None = None
    """Half-width of the 90 % interval of progress, in uncertainties (`metrics.interval`), calibrated on held-out
    episodes. None: not calibrated.
    """
    success_threshold: float | None = None
    """Success probability from which a frame counts as done, fitted on held-out episodes. None: not calibrated."""

    def __post_init__(self) -> None:
        if len(self.views) > MAX_VIEWS:
            raise UserError(f"a net has at most {MAX_VIEWS} views, got {len(self.views)}")


class ProgressNet(nn.Module):
    """A `RewardModel`. Shapes: N environments, V views, P images.

    Predictions run in eval mode without autograd and leave the module as it was. Rows are independent of each other.
    """

    def __init__(self, config: NetConfig, encoder: Encoder | None = None) -> None:
        """Build the net around an encoder with its weights; None: built from `config.encoder` with random weights."""
        super().__init__()
        self.config = config
        self.encoder = Encoder(config.encoder) if encoder is None else encoder
        width = config.width
        self.instruction = nn.Linear(config.encoder.open_clip["embed_dim"], width)
        self.view_embedding = nn.Parameter(0.02 * torch.randn(len(config.views), width))
        shape, grid = self.encoder.feature_shape(), config.grid_size
        self.view_token = ViewToken(shape, width, channels=config.channels, grid=grid)
        self.fusion = ViewFusion(width, config.num_layers)
        self.heads = Heads(width, config.max_subtasks, with_distribution=config.median_ood is not None)

    @property
    def input_spec(self) -> InputSpec:
        """The configured views, at the image size of the tower."""
        return InputSpec(views=self.config.views, image_size=self.config.encoder.image_size)

    @property
    def capabilities(self) -> Capabilities:
        """Tensor input, serializable states and, once calibrated, intervals and a success threshold."""
        return Capabilities(
            accepts_tensors=True,
            serializable_state=True,
            interval_scale=self.config.interval_scale,
            success_threshold=self.config.success_threshold,
        )

    # Shared by training and prediction

    def embed_instructions(self, instructions: Sequence[str]) -> Tensor:
        """Instruction vectors [N, width]; equal instructions are encoded once."""
        unique = list(dict.fromkeys(instructions))
        vectors = self._embed_text(unique)
        return vectors[torch.tensor([unique.index(sentence) for sentence in instructions], device=vectors.device)]

    def _embed_text(self, sentences: Sequence[str]) -> Tensor:
        return self.instruction(self.encoder.encode_text(sentences))

    def embed(
        self, features: Tensor, view_index: Tensor, batch_index: Tensor, instruction: Tensor, masked_views: Tensor
    ) -> Tensor:
        """Embed N frames, once per mask of views.

        Args:
            features: Feature maps of all present images [P, C, h, w].
            view_index: int64 [P]: the view of each image.
            batch_index: int64 [P]: the frame of each image; each pair of frame and view occurs once.
            instruction: Instruction vectors [N, width].
            masked_views: bool [L, V]: views that are left out, in frames with at least three views.

        Returns:
            Embeddings [L, N, width]; meaningless for frames without images.
        """
        condition = instruction[batch_index] + self.view_embedding[view_index]
        tokens = self.view_token(features, condition) + self.view_embedding[view_index]
        shape = (instruction.shape[0], len(self.config.views))
        dense = tokens.new_zeros(*shape, tokens.shape[-1]).index_put((batch_index, view_index), tokens)
        ones = torch.ones_like(batch_index, dtype=torch.bool)
        present = ones.new_zeros(shape).index_put((batch_index, view_index), ones)
        has_majority = present.sum(dim=1, keepdim=True) >= MIN_VIEWS_LEAVE_ONE_OUT
        attended = (present & ~(masked_views[:, None] & has_majority)).flatten(0, 1)
        num_masks = masked_views.shape[0]
        embeddings = self.fusion(dense.repeat(num_masks, 1, 1), attended, instruction.repeat(num_masks, 1))
        return embeddings.unflatten(0, (num_masks, -1))

    def with_fusion(self, kind: potential_fusion.FusionKind) -> ProgressNet:
        """Return a copy that shares the weights and fuses the perspectives in another way."""
        net = copy.copy(self)
        interval_scale = self.config.interval_scale if kind == self.config.fusion else None
        net.config = replace(self.config, fusion=kind, interval_scale=interval_scale)
        return net

    def embed_episode(self, episode: Episode) -> Tensor:
        """Embeddings [up to T, width] of all frames of an episode with a visible view."""
        names = tuple(episode.views)
        frames = np.stack([episode.views[name] for name in names], axis=1)
        blocks = (frames[start : start + FRAMES_PER_BLOCK] for start in range(0, len(frames), FRAMES_PER_BLOCK))
        states = [self.reset(Views(names=names, frames=block), [episode.instruction] * len(block)) for block in blocks]
        return torch.cat([state.previous_embedding[state.has_observation] for state in states])

    def with_calibration(
        self,
        distribution: EmbeddingDistribution | None,
        median_ood: float | None,
        interval_scale: float | None = None,
        success_threshold: float | None = None,
    ) -> ProgressNet:
        """Return a copy that shares the weights and has the given calibration, see `NetConfig`.

        `distribution` None: that of this model and its median are kept.
        """
        net = copy.copy(self)
        net._modules = {**self._modules, "heads": copy.copy(self.heads)}
        if distribution is None:
            median_ood = self.config.median_ood
        else:
            net.heads._modules = {**self.heads._modules, "distribution": distribution}
        net.config = replace(
            self.config, median_ood=median_ood, interval_scale=interval_scale, success_threshold=success_threshold
        )
        return net

    # The `RewardModel` interface

    def reset(
        self,
        views: Views,
        instructions: Sequence[str],
        goal: Views | None = None,
        reference: Demonstration | None = None,
    ) -> ProgressNetState:
        """Start N episodes at their first frames, with one instruction (goal image, demonstration) per environment.

        `UserError` if lengths differ, a view is unknown, a goal or a keyframe has no visible view, or the fusion needs
        goals or references and there are none.
        """
        check_reset(len(views), instructions, goal, reference)
        self._check_anchors(goal, reference)
        with inference_context(self):
            instruction = self.embed_instructions(instructions)
            embedding, leave_one_out, visible = self._embed_views(views, instruction)
            goal_embedding = None if goal is None else self._embed_goal(goal, instruction)
            reference_fields = {} if reference is None else self._embed_reference(reference)
        zeros = torch.zeros(len(embedding), device=embedding.device)
        return ProgressNetState(
            instruction=instruction,
            first_embedding=embedding,
            first_leave_one_out=self._leave_one_out(leave_one_out, embedding),
            previous_embedding=embedding,
            has_observation=visible,
            carried_potential=zeros,
            expected_error=zeros,
            success=zeros,
            subtask=zeros.long(),
            goal_embedding=goal_embedding,
            **reference_fields,
        )

    def _check_anchors(self, goal: Views | None, reference: Demonstration | None) -> None:
        """Raise `UserError` if the fusion is a single perspective whose anchor is missing."""
        requirements = {
            "backward": (goal, "a goal image", "use_goal_images=true"),
            "reference": (reference, "a reference demonstration", "one_shot.method=in_context"),
        }
        anchor, label, hint = requirements.get(self.config.fusion, (True, "", ""))
        if anchor is None:
            others = ", ".join(kind for kind in potential_fusion.FUSION_KINDS if kind not in requirements)
            raise UserError(
                f"fusion={self.config.fusion} needs {label} and there is none: give one (evaluate {hint}), or "
                f"choose another fusion: {others}"
            )

    def _embed_reference(self, reference: Demonstration) -> dict[str, Tensor]:
        """State fields of a reference: embeddings, progress, and the belief that the first keyframe is current."""
        progress = torch.from_numpy(reference.progress)
        instruction = self.embed_instructions(reference.instructions).repeat_interleave(progress.shape[1], dim=0)
        embeddings, _, visible = self._embed_views(reference.views, instruction)
        if not visible.all():
            row, timestep = divmod(int((~visible).nonzero()[0]), progress.shape[1])
            view_names = ", ".join(self.config.views)
            label = f"keyframe {timestep} of the reference of environment {row}"
            raise UserError(f"{label} shows none of {view_names}{BLANK_HINT}")
        embeddings = embeddings.view(*progress.shape, -1)
        progress = progress.to(embeddings)
        belief = torch.zeros_like(progress)
        belief[:, 0] = 1
        fields = {"reference_embeddings": embeddings, "reference_progress": progress}
        return {**fields, "belief": belief, "max_belief": sum_neighbors(belief)}

    def _embed_goal(self, goal: Views, instruction: Tensor) -> Tensor:
        embedding, _, visible = self._embed_views(goal, instruction)
        if not visible.all():
            row = int((~visible).nonzero()[0])
            raise UserError(f"the goal of environment {row} shows none of {', '.join(self.config.views)}{BLANK_HINT}")
        return embedding

    def step(self, state: RewardState, views: Views) -> tuple[RewardOutput, ProgressNetState]:
        """Score one new frame set per row, fusing the perspectives of `potential_fusion`.

        A row without a visible view is invalid and carries its last prediction. A row without an earlier observation
        starts at this frame. `UserError` if the lengths differ or a view is unknown to the model.
        """
        assert isinstance(state, ProgressNetState)
        check_step(len(state), len(views))
        with inference_context(self):
            embedding, leave_one_out, visible = self._embed_views(views, state.instruction)
            if not state.has_observation.all():
                state = state.start_rows(embedding, self._leave_one_out(leave_one_out, embedding), visible)
            alignment = self._align(state, embedding)
            goals = () if state.goal_embedding is None else (state.goal_embedding,)
            anchors = [state.previous_embedding, state.first_embedding, *goals]
            outputs = self.heads(torch.stack(anchors), embedding)
            fused = potential_fusion.fuse_perspectives(
                self.config.fusion,
                state.potential(),
                state.expected_error.cpu().numpy(),
                outputs.hop.cpu().numpy(),
                outputs.expected_error.cpu().numpy(),
                None if alignment is None else alignment.potential.cpu().numpy(),
            )
            success = self._success_prob(outputs, state.first_leave_one_out, leave_one_out, alignment)
            next_state = state.update_rows(visible, **self._next_fields(fused, embedding, outputs, success, alignment))
        ood = outputs.ood.cpu().numpy()
        uncertainty = inflate_uncertainty(fused.uncertainty, ood, self.config.median_ood)
        return next_state.to_output(visible, uncertainty, ood), next_state

    def _align(self, state: ProgressNetState, embedding: Tensor) -> Alignment | None:
        """Alignment of each row with its reference; None without references."""
        if state.reference_embeddings is None:
            return None
        assert state.belief is not None and state.max_belief is not None and state.reference_progress is not None
        return forward_filter_step(
            state.belief, state.max_belief, state.reference_embeddings, state.reference_progress, embedding
        )

    def _success_prob(
        self, outputs: HeadOutputs, first_without: Tensor, without: Tensor | None, alignment: Alignment | None
    ) -> Tensor:
        """Success probability [N]: that of the reference if there is one, else limited by those without each view."""
        if alignment is not None:
            return alignment.success_score
        success = torch.sigmoid(outputs.success_logit)
        if without is None:
            return success
        logits = self.heads.success_logit(first_without.expand_as(without), without)
        return leave_one_out_success(success, torch.sigmoid(logits))

    def _next_fields(
        self,
        fused: potential_fusion.FusedPotential,
        embedding: Tensor,
        outputs: HeadOutputs,
        success: Tensor,
        alignment: Alignment | None,
        rows: slice = slice(None),
    ) -> dict[str, Tensor]:
        """State fields after a prediction of the given rows."""
        names = () if alignment is None else ("belief", "max_belief")
        return {
            "previous_embedding": embedding[rows],
            "carried_potential": torch.from_numpy(fused.potential[rows]).to(embedding.device),
            "expected_error": torch.from_numpy(fused.expected_error[rows]).to(embedding.device),
            "success": success[rows],
            "subtask": outputs.subtask_logits[rows].argmax(dim=-1),
            **{name: getattr(alignment, name)[rows] for name in names},
        }

    def _embed_views(self, views: Views, instruction: Tensor) -> tuple[Tensor, Tensor | None, Tensor]:
        """Embed the frames of `views`; only visible images are read.

        Returns embeddings [N, width], leave-one-out embeddings [N, V, width] (None if no frame has three views), and
        bool [N]: whether any view is visible.
        """
        for name in views.names:
            if name not in self.config.views:
                raise UserError(unknown_name_message(name, self.config.views, "view"))
        visible = visible_views(views)
        batch_index, column = np.nonzero(visible)
        view_index = np.array([self.config.views.index(name) for name in views.names])
        has_majority = visible.sum(axis=1).max(initial=0) >= MIN_VIEWS_LEAVE_ONE_OUT
        masked_views = torch.eye(len(self.config.views) + 1, dtype=torch.bool)[: None if has_majority else 1, 1:]
        images = ImageBatch(frames=views.frames, batch_index=batch_index, column=column, view_index=view_index[column])
        embeddings = self._embed_images(images, instruction, masked_views.to(instruction.device))
        any_visible = torch.from_numpy(visible.any(axis=1)).to(instruction.device)
        return embeddings[0], embeddings[1:].transpose(0, 1) if has_majority else None, any_visible

    def _leave_one_out(self, leave_one_out: Tensor | None, embedding: Tensor) -> Tensor:
        """Leave-one-out embeddings [N, V, width]; those of all views where the rule does not apply."""
        return embedding[:, None].expand(-1, len(self.config.views), -1) if leave_one_out is None else leave_one_out

    def _embed_images(self, images: ImageBatch, instruction: Tensor, masked_views: Tensor) -> Tensor:
        """Embeddings [L, N, width] of the frames of `images`, once per mask of views."""
        device = instruction.device
        chunks = (images[i : i + IMAGES_PER_CHUNK] for i in range(0, max(len(images), 1), IMAGES_PER_CHUNK))
        maps = [self.encoder.encode_image(self.encoder.preprocess(chunk.pixels().to(device))) for chunk in chunks]
        features = maps[0] if len(maps) == 1 else torch.cat(maps)
        return self.embed(features, *images.indices(device), instruction, masked_views)


@contextmanager
def inference_context(model: nn.Module) -> Iterator[None]:
    """Run the block in eval mode without autograd, then restore the mode."""
    was_training = model.training
    if was_training:  # eval() visits all modules, which takes a tenth of a prediction's time
        model.eval()
    try:
        with torch.inference_mode():
            yield
    finally:
        if was_training:
            model.train()
