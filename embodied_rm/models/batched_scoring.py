"""Scoring of several frames of one episode with `ProgressNet`: networks in one batch, fusion frame by frame."""

from dataclasses import replace

import numpy as np
import torch
from torch import Tensor

from embodied_rm.models.demo_alignment import Alignment
from embodied_rm.models.heads import HeadOutputs
from embodied_rm.models.ood import inflate_uncertainty
from embodied_rm.models.potential_fusion import FusedPotential, fuse_perspectives
from embodied_rm.models.progress_net import ProgressNet, inference_context
from embodied_rm.models.progress_net_state import ProgressNetState
from embodied_rm.models.view_fusion import visible_views
from embodied_rm.types import RewardOutput, Views


def can_batch(state: ProgressNetState, views: Views) -> bool:
    """Whether `step_in_batch` applies: one row that has observed a frame, and a visible view in every new frame."""
    return len(state) == 1 and bool(state.has_observation.all()) and bool(visible_views(views).any(axis=1).all())


def step_in_batch(net: ProgressNet, state: ProgressNetState, views: Views) -> tuple[RewardOutput, ProgressNetState]:
    """Score T frames of one environment, in their order: `ProgressNet.step` up to rounding; see `can_batch`.

    Embeddings and heads do not depend on earlier predictions, so they are computed for all T frames at once. Only the
    potential, its expected error and the belief about the position along a reference are carried from frame to frame.
    """
    with inference_context(net):
        embeddings, leave_one_out, visible = net._embed_views(views, state.instruction.expand(len(views), -1))
        anchors = [torch.cat([state.previous_embedding, embeddings[:-1]]), state.first_embedding.expand_as(embeddings)]
        if state.goal_embedding is not None:
            anchors.append(state.goal_embedding.expand_as(embeddings))
        outputs = net.heads(torch.stack(anchors), embeddings)
        alignment = align_timesteps(net, state, embeddings)
        success = net._success_prob(outputs, state.first_leave_one_out, leave_one_out, alignment)
        fused = fuse_sequentially(net, state, outputs, alignment)
        last_fields = net._next_fields(fused, embeddings, outputs, success, alignment, slice(-1, None))
        next_state = state.update_rows(visible[-1:], **last_fields)
    ood = outputs.ood.cpu().numpy()
    return RewardOutput(
        progress=fused.potential,
        valid=np.ones(len(embeddings), bool),
        subtask=outputs.subtask_logits.argmax(dim=-1).cpu().numpy(),
        success=success.cpu().numpy(),
        uncertainty=inflate_uncertainty(fused.uncertainty, ood, net.config.median_ood),
        ood=ood,
    ), next_state


def align_timesteps(net: ProgressNet, state: ProgressNetState, embeddings: Tensor) -> Alignment | None:
    """Alignment of T frames with the reference of the row; None without a reference."""
    alignments: list[Alignment] = []
    for t in range(len(embeddings)):
        alignment = net._align(state, embeddings[t : t + 1])
        if alignment is None:
            return None
        state = replace(state, belief=alignment.belief, max_belief=alignment.max_belief)
        alignments.append(alignment)
    return Alignment(**{name: torch.cat([getattr(a, name) for a in alignments]) for name in vars(alignments[0])})


def fuse_sequentially(
    net: ProgressNet, state: ProgressNetState, outputs: HeadOutputs, alignment: Alignment | None
) -> FusedPotential:
    """The T potentials in turn, since each is the anchor of the next."""
    hops, errors = outputs.hop.cpu().numpy(), outputs.expected_error.cpu().numpy()
    aligned_potentials = None if alignment is None else alignment.potential.cpu().numpy()
    potential, expected_error = state.potential(), state.expected_error.cpu().numpy()
    fused_steps: list[FusedPotential] = []
    for t in range(len(errors)):
        index = slice(t, t + 1)
        aligned = None if aligned_potentials is None else aligned_potentials[index]
        inputs = (potential, expected_error, hops[:, index], errors[index], aligned)
        fused_steps.append(fuse_perspectives(net.config.fusion, *inputs))
        potential, expected_error, _ = fused_steps[-1]
    return FusedPotential(*(np.concatenate(column) for column in zip(*fused_steps, strict=True)))
