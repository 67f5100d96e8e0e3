"""What the heads say of a whole training batch: every picture encoded once, every ordered pair of moments judged."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, fields, replace
from itertools import chain
from typing import Literal

import torch
from torch import Tensor

from embodied_rm.errors import UserError
from embodied_rm.group import Group
from embodied_rm.labels.batches import Batch
from embodied_rm.models.augment import AugmentConfig, hide_views, impostors, tint, warp
from embodied_rm.models.encoders import Encoder
from embodied_rm.models.progress_net import ProgressNet

Precision = Literal["float32", "bfloat16"]
"""In which a net judges while it learns. Weights, losses and optimiser are float32 in any case."""


@dataclass(frozen=True, kw_only=True)
class Outputs:
    """Predictions for B episodes at M moments (the goal not counted)."""

    hops: Tensor
    """Hop from moment p to moment q, [B, p, q]; row 0 is anchored at the first frame."""
    goal_hops: Tensor
    """Hop from the goal to each moment, [B, M]."""
    error: Tensor
    """Absolute error to expect of the potential as seen from the first frame, [B, M]."""
    completion: Tensor
    """Logits of "done", [B, M]."""
    step: Tensor
    """Logits of the step under way, [B, M, S]."""
    foreign_hop: Tensor
    """Hop from the first to the last frame under instructions that want something else, [K, B]."""
    foreign_completion: Tensor
    """Logits of "done" at the last frame under these instructions, [K, B]."""


@dataclass(frozen=True, kw_only=True)
class Pictures:
    """Those of a batch, as a net is shown them: normalised and augmented, or what a frozen tower once saw of them."""

    varied: Tensor
    """float32 [B, M + 1, V, H, W, 3], the last moment the goal; or maps float16 [B, M + 1, V, C, h, w]."""
    shown: Tensor
    """bool [B, M + 1, V]."""


@torch.no_grad()
def augmented(encoder: Encoder, batch: Batch, config: AugmentConfig, generator: torch.Generator) -> Pictures:
    """The goal is augmented on its own: it comes from another recording."""
    pictures = torch.from_numpy(batch.frames)
    if pictures.dtype == torch.float16:
        return Pictures(varied=pictures, shown=hide_views(torch.from_numpy(batch.present), config, generator))
    present = torch.from_numpy(batch.present)
    varied, shown = torch.empty(pictures.shape), torch.empty_like(present)
    for part in (slice(-1), slice(-1, None)):
        varied[:, part] = _varied(encoder, pictures[:, part], config, generator).movedim(3, -1)
        shown[:, part] = hide_views(present[:, part], config, generator)
    varied = impostors(varied, shown, torch.from_numpy(batch.at), config, generator)
    return Pictures(varied=varied, shown=shown)


def training_pass(net: ProgressNet, batch: Batch, pictures: Pictures, precision: Precision = "float32") -> Outputs:
    """Judge a batch by its pictures. The outputs are float32 whatever the precision."""
    with torch.autocast(net.view_embedding.device.type, torch.bfloat16, enabled=precision == "bfloat16"):
        said = _said(net, batch, pictures)
    return Outputs(**{field.name: getattr(said, field.name).float() for field in fields(Outputs)})


def _said(net: ProgressNet, batch: Batch, pictures: Pictures) -> Outputs:
    shown = pictures.shown
    seen = pictures.varied[shown]
    # Pixels lie channels last, as the tower wants them.
    maps = seen.float() if seen.dtype == torch.float16 else net.encoder.look(seen.movedim(-1, 1))
    states = _states(net, maps, shown, batch.instructions)
    moments, goals = states[:, :-1], states[:, -1:]
    first = moments[:, :1]
    # Moments 0 and 1 are the first and the last frame; only what reads their maps runs again.
    ends = shown.clone()
    ends[:, 2:] = False
    end_maps, end_shown, looks = maps[ends[shown]], ends[:, :2], len(batch.foreign)
    texts = tuple(chain(*batch.foreign))
    foreign = _states(net, end_maps.repeat(looks, 1, 1, 1), end_shown.repeat(looks, 1, 1), texts)
    foreign = foreign.unflatten(0, (looks, -1))
    return Outputs(
        hops=net.heads.hop(moments[:, :, None], moments[:, None]),
        goal_hops=net.heads.hop(goals, moments),
        error=net.heads.error(first, moments),
        completion=net.heads.completion(first, moments),
        step=net.heads.step(first, moments),
        foreign_hop=net.heads.hop(foreign[:, :, 0], foreign[:, :, 1]),
        foreign_completion=net.heads.completion(foreign[:, :, 0], foreign[:, :, 1]),
    )


Judge = Callable[[Batch, Pictures], Outputs]
"""What says of a batch what `training_pass` does."""


def shared_passes(judge: Judge, batch: Batch, pictures: Pictures, group: Group, accumulate: int) -> Iterator[Outputs]:
    """What `judge` says of the whole batch, once for each part that this process judges: gradients go through that part
    alone.

    Each of a group has a share of the episodes, in `accumulate` parts. The gradients of all parts of everybody add up
    to that of the whole batch, by the same sums however the parts are dealt out: two parts of one process learn to the
    bit what one part of each of two does.
    """
    share = group.share(len(batch.instructions), "batch")
    if share % accumulate:
        raise UserError(f"accumulate={accumulate} parts cannot be made of {share} episodes")
    begin, size = group.rows(share).start, share // accumulate
    parts = [_part(batch, pictures, slice(at, at + size)) for at in range(begin, begin + share, size)]
    fixed: list[Outputs | None] = [None]
    if accumulate > 1:
        with torch.no_grad():
            fixed = [judge(*part) for part in parts]
    for i, part in enumerate(parts):
        yield _together([*fixed[:i], judge(*part), *fixed[i + 1 :]], group)


def _part(batch: Batch, pictures: Pictures, rows: slice) -> tuple[Batch, Pictures]:
    """Some of the episodes, as far as a pass looks at them."""
    foreign = tuple(texts[rows] for texts in batch.foreign)
    some = replace(batch, instructions=batch.instructions[rows], foreign=foreign)
    return some, Pictures(varied=pictures.varied[rows], shown=pictures.shown[rows])


def _together(parts: Sequence[Outputs | None], group: Group) -> Outputs:
    """The outputs of this process's parts and everybody's, in the order of the episodes."""
    whole = {}
    for field in fields(Outputs):
        # Foreign wishes come first, then the episodes; of all else the episodes come first.
        along = int(field.name.startswith("foreign"))
        mine = torch.cat([getattr(part, field.name) for part in parts], dim=along)
        whole[field.name] = group.gathered(mine, along)
    return Outputs(**whole)


def _varied(encoder: Encoder, pictures: Tensor, config: AugmentConfig, generator: torch.Generator) -> Tensor:
    """Normalised and augmented pictures float [B, M, V, 3, H, W]; one pass over the pixels does both."""
    moved = warp(pictures, config, generator)
    gain, offset = tint(moved.shape, config, generator)
    return torch.addcmul(gain * encoder.offset + offset, moved, gain * encoder.gain)


def _states(net: ProgressNet, maps: Tensor, shown: Tensor, instructions: tuple[str, ...]) -> Tensor:
    """States [B, M, width] from the maps of the pictures that are `shown` (bool [B, M, V]), in that order."""
    B, M, V = shown.shape
    owner, view = shown.reshape(B * M, V).nonzero(as_tuple=True)
    vectors = net.read(instructions).repeat_interleave(M, dim=0)
    hidden = torch.zeros(1, V, dtype=torch.bool)
    return net.states(maps, view, owner, vectors, hidden).view(B, M, -1)
