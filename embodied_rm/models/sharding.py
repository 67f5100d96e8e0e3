"""Towers shared among processes (FSDP2): each holds its part of every weight, gradient and moment, and gathers a block
of them when it is run through. What stands on the towers is small, and whole everywhere."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import chain

import torch
from torch import Tensor, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.distributed.tensor import DTensor, distribute_tensor

from embodied_rm.group import Group
from embodied_rm.labels.batches import Batch
from embodied_rm.models.progress_net import ProgressNet
from embodied_rm.models.training_pass import Judge, Outputs, Pictures, Precision, training_pass

BLOCKS = ("blocks", "resblocks", "layers", "layer", "stages")
"""What timm, open_clip and `transformers` call the lists of what a tower is made of; they are run one after the other,
and no two need be whole at once."""


class Pass(nn.Module):
    """`training_pass` as a module: what it gathers before, it lets go behind."""

    def __init__(self, net: ProgressNet, precision: Precision) -> None:
        super().__init__()
        self.net, self.precision = net, precision

    def forward(self, batch: Batch, pictures: Pictures) -> dict[str, Tensor]:
        """The fields of the outputs; FSDP looks into a dict."""
        said = vars(training_pass(self.net, batch, pictures, self.precision))
        return {name: value.clone() for name, value in said.items()}  # hooks would be lost on views


@contextmanager
def sharded(net: ProgressNet, precision: Precision, group: Group) -> Iterator[Judge]:
    """Inside, the towers of `net` are shared by the `group`; behind, they are whole again, with what they learned.
    Gives the training pass of the net so shared.

    A reader that does not learn stays whole: it reads each sentence once, not everybody at the same time.
    """
    whole_clip = net.encoder.clip
    held = chain(whole_clip.parameters(), whole_clip.buffers())
    # The same modules once more around the same tensors: no tower is in memory twice.
    net.encoder.clip = copy.deepcopy(whole_clip, {id(tensor): tensor for tensor in held})
    judge = _cut(net, precision, group)
    pairs = list(zip(whole_clip.parameters(), net.encoder.clip.parameters(), strict=True))
    parted = [(kept, part) for kept, part in pairs if isinstance(part, DTensor)]
    for kept, _ in parted:
        kept.data = torch.empty(0)
    yield lambda batch, pictures: Outputs(**judge(batch, pictures))
    for kept, part in parted:
        kept.data = whole(part.detach())
    net.encoder.clip = whole_clip.to(memory_format=torch.channels_last)


def _cut(net: ProgressNet, precision: Precision, group: Group) -> Pass:
    """Cut the towers up, for the training pass that this gives."""
    net.encoder.clip.to(memory_format=torch.contiguous_format)  # all that FSDP takes
    judge = Pass(net, precision)
    towers = net.encoder.clip if net.encoder.config.trained else net.encoder.clip.visual
    shared = {p for p in towers.parameters() if p.ndim}  # it takes no scalars either
    half = torch.bfloat16 if precision == "bfloat16" else None
    policy = MixedPrecisionPolicy(param_dtype=half, reduce_dtype=torch.float32)
    mesh = init_device_mesh(net.view_embedding.device.type, (group.size,))
    for module in (*_blocks(towers), judge):
        cut = fully_shard(module, mesh=mesh, mp_policy=policy, ignored_params=set(judge.parameters()) - shared)
        # Everybody's gradients are parts of one sum, not of a mean.
        cut.set_gradient_divide_factor(1.0)
        cut.set_force_sum_reduction_for_comms(True)
    return judge


def _blocks(towers: nn.Module) -> list[nn.Module]:
    """What is gathered by itself, inner ones first."""
    lists = [module for name, module in towers.named_modules() if name.split(".")[-1] in BLOCKS]
    return [block for some in reversed(lists) if isinstance(some, nn.ModuleList | nn.Sequential) for block in some]


def local(tensor: Tensor) -> Tensor:
    """What this process holds of a tensor."""
    return tensor.to_local() if isinstance(tensor, DTensor) else tensor


def whole(tensor: Tensor) -> Tensor:
    """All of a tensor; everybody has to ask for it."""
    return tensor.full_tensor() if isinstance(tensor, DTensor) else tensor


def laid_out_as(like: Tensor, value: Tensor) -> Tensor:
    """A whole tensor, cut and in the memory as another one is: the fused optimiser walks memory."""
    if isinstance(like, DTensor):
        return distribute_tensor(value, like.device_mesh, like.placements, src_data_rank=None)
    return torch.empty_like(like).copy_(value)
