"""Forward pass of training: every image is encoded once, every ordered pair of frames is predicted."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, fields, replace
from itertools import chain
from typing import Literal

import torch
from torch import Tensor

from embodied_rm.distributed import DistContext
from embodied_rm.errors import UserError
from embodied_rm.models.encoders import Encoder
from embodied_rm.models.progress_net import ProgressNet
from embodied_rm.training.augment import AugmentConfig, drop_views, sample_color_jitter, spoof_goal_images, warp
from embodied_rm.training.batches import LabeledBatch

Precision = Literal["float32", "bfloat16"]
"""Precision of the forward pass. Weights, losses and optimizer are always float32."""


@dataclass(frozen=True, kw_only=True)
class TrainingOutputs:
    """Predictions for B episodes at M frames (without the goal image)."""

    hops: Tensor  # hop from frame p to frame q, [B, p, q]; row 0 starts at the first frame
    goal_hops: Tensor  # hop from the goal to each frame, [B, M]
    expected_error: Tensor  # expected absolute error of the hop from the first frame, [B, M]
    success_logit: Tensor  # logits of success, [B, M]
    subtask_logits: Tensor  # logits of the current subtask, [B, M, S]
    negative_hop: Tensor  # hop from the first to the last frame under negative instructions, [K, B]
    negative_success_logit: Tensor  # logits of success at the last frame under negative instructions, [K, B]


@dataclass(frozen=True, kw_only=True)
class TrainingImages:
    """Images of a batch: normalized and augmented, or cached features of a frozen tower."""

    inputs: Tensor  # float32 [B, M + 1, V, H, W, 3], the last one the goal; or features float16 [B, M + 1, V, C, h, w]
    visible: Tensor  # bool [B, M + 1, V], on the CPU


@torch.no_grad()
def augment_batch(
    encoder: Encoder, batch: LabeledBatch, config: AugmentConfig, generator: torch.Generator
) -> TrainingImages:
    """Normalize and augment the images of a batch. The goal is augmented separately: it is from another recording."""
    images = torch.from_numpy(batch.frames).to(encoder.gain.device)
    if images.dtype == torch.float16:
        return TrainingImages(inputs=images, visible=drop_views(torch.from_numpy(batch.present), config, generator))
    present = torch.from_numpy(batch.present)
    inputs, visible = torch.empty(images.shape, device=images.device), torch.empty_like(present)
    for timesteps in (slice(-1), slice(-1, None)):
        inputs[:, timesteps] = _augment_images(encoder, images[:, timesteps], config, generator).movedim(3, -1)
        visible[:, timesteps] = drop_views(present[:, timesteps], config, generator)
    inputs = spoof_goal_images(inputs, visible, torch.from_numpy(batch.frame_indices), config, generator)
    return TrainingImages(inputs=inputs, visible=visible)


def training_forward(
    net: ProgressNet, batch: LabeledBatch, images: TrainingImages, precision: Precision = "float32"
) -> TrainingOutputs:
    """Return the predictions for a batch, float32 for every precision."""
    with torch.autocast(net.view_embedding.device.type, torch.bfloat16, enabled=precision == "bfloat16"):
        outputs = _forward(net, batch, images)
    return TrainingOutputs(**{field.name: getattr(outputs, field.name).float() for field in fields(TrainingOutputs)})


def _forward(net: ProgressNet, batch: LabeledBatch, images: TrainingImages) -> TrainingOutputs:
    visible = images.visible
    selected = images.inputs[visible]
    # Pixels are stored channels last, the memory format of the tower.
    is_cached = selected.dtype == torch.float16
    features = selected.float() if is_cached else net.encoder.encode_image(selected.movedim(-1, 1))
    embeddings = _embed(net, features, visible, batch.instructions)
    timesteps, goal_embeddings = embeddings[:, :-1], embeddings[:, -1:]
    first = timesteps[:, :1]
    # Frames 0 and 1 are the first and the last one. Their features are reused; only the net on top runs again.
    end_mask = visible.clone()
    end_mask[:, 2:] = False
    num_negatives = len(batch.negatives)
    end_features = features[end_mask[visible]].repeat(num_negatives, 1, 1, 1)
    end_visible = end_mask[:, :2].repeat(num_negatives, 1, 1)
    negatives = _embed(net, end_features, end_visible, tuple(chain(*batch.negatives)))
    negatives = negatives.unflatten(0, (num_negatives, -1))
    return TrainingOutputs(
        hops=net.heads.hop(timesteps[:, :, None], timesteps[:, None]),
        goal_hops=net.heads.hop(goal_embeddings, timesteps),
        expected_error=net.heads.expected_error(first, timesteps),
        success_logit=net.heads.success_logit(first, timesteps),
        subtask_logits=net.heads.subtask_logits(first, timesteps),
        negative_hop=net.heads.hop(negatives[:, :, 0], negatives[:, :, 1]),
        negative_success_logit=net.heads.success_logit(negatives[:, :, 0], negatives[:, :, 1]),
    )


ForwardFn = Callable[[LabeledBatch, TrainingImages], TrainingOutputs]
"""Forward pass with the signature of `training_forward`, bound to a net."""


def microbatch_forwards(
    forward_fn: ForwardFn, batch: LabeledBatch, images: TrainingImages, group: DistContext, accumulation_steps: int
) -> Iterator[TrainingOutputs]:
    """Yield the outputs of the whole batch once per microbatch of this process, with gradients of that microbatch only.

    The gradients of all microbatches of all processes sum to that of the whole batch. The result does not depend on
    their distribution: two microbatches in one process equal one in each of two processes, bit for bit. `UserError` if
    the batch cannot be divided evenly.
    """
    local_size = group.local_count(len(batch.instructions), "batch_size")
    if local_size % accumulation_steps:
        setting = f"gradient_accumulation_steps={accumulation_steps}"
        raise UserError(f"{setting} must divide the {local_size} episodes of a process")
    start, micro_size = group.local_rows(local_size).start, local_size // accumulation_steps
    offsets = range(start, start + local_size, micro_size)
    microbatches = [_slice_batch(batch, images, slice(offset, offset + micro_size)) for offset in offsets]
    detached: list[TrainingOutputs | None] = [None]
    if accumulation_steps > 1:
        with torch.no_grad():
            detached = [forward_fn(*microbatch) for microbatch in microbatches]
    for i, microbatch in enumerate(microbatches):
        yield _gather_outputs([*detached[:i], forward_fn(*microbatch), *detached[i + 1 :]], group)


def _slice_batch(batch: LabeledBatch, images: TrainingImages, rows: slice) -> tuple[LabeledBatch, TrainingImages]:
    """Return the rows of a batch, in the fields that the forward pass reads."""
    negatives = tuple(texts[rows] for texts in batch.negatives)
    subset = replace(batch, instructions=batch.instructions[rows], negatives=negatives)
    return subset, TrainingImages(inputs=images.inputs[rows], visible=images.visible[rows])


def _gather_outputs(outputs: Sequence[TrainingOutputs | None], group: DistContext) -> TrainingOutputs:
    """Concatenate the outputs of all microbatches of all processes on the CPU, in the order of the episodes.

    They are small, and so are the losses, which are computed there.
    """
    gathered = {}
    for field in fields(TrainingOutputs):
        # Outputs of negative instructions are [K, B], all others [B, ...].
        dim = int(field.name.startswith("negative_"))
        local = torch.cat([getattr(output, field.name) for output in outputs], dim=dim)
        gathered[field.name] = group.all_gather_tensor(local, dim).cpu()
    return TrainingOutputs(**gathered)


def _augment_images(encoder: Encoder, images: Tensor, config: AugmentConfig, generator: torch.Generator) -> Tensor:
    """Normalize and augment images in one pass over the pixels; float [B, M, V, 3, H, W]."""
    warped = warp(images, config, generator)
    gain, offset = (values.to(images.device) for values in sample_color_jitter(warped.shape, config, generator))
    return torch.addcmul(gain * encoder.offset + offset, warped, gain * encoder.gain)


def _embed(net: ProgressNet, features: Tensor, visible: Tensor, instructions: tuple[str, ...]) -> Tensor:
    """Return embeddings [B, M, width] from the features of the images that are visible (bool [B, M, V]), in order."""
    B, M, V = visible.shape
    batch_index, view_index = visible.reshape(B * M, V).to(features.device).nonzero(as_tuple=True)
    instruction_embeddings = net.embed_instructions(instructions).repeat_interleave(M, dim=0)
    masked_views = torch.zeros(1, V, dtype=torch.bool, device=features.device)
    return net.embed(features, view_index, batch_index, instruction_embeddings, masked_views).view(B, M, -1)
