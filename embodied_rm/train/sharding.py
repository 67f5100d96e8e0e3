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

from embodied_rm.distributed import DistContext
from embodied_rm.models.progress_net import ProgressNet
from embodied_rm.train.batches import LabeledBatch
from embodied_rm.train.forward import ForwardFn, Precision, TrainingImages, TrainingOutputs, training_forward

BLOCK_LIST_NAMES = ("blocks", "resblocks", "layers", "layer", "stages")
"""What timm, open_clip and `transformers` call the lists of what a tower is made of; they are run one after the other,
and no two need be whole at once."""


class ShardedForward(nn.Module):
    """`training_pass` as a module: what it gathers before, it lets go behind."""

    def __init__(self, net: ProgressNet, precision: Precision) -> None:
        super().__init__()
        self.net, self.precision = net, precision

    def forward(self, batch: LabeledBatch, images: TrainingImages) -> dict[str, Tensor]:
        """The fields of the outputs; FSDP looks into a dict."""
        outputs = vars(training_forward(self.net, batch, images, self.precision))
        return {name: value.clone() for name, value in outputs.items()}  # hooks would be lost on views


@contextmanager
def shard_towers(net: ProgressNet, precision: Precision, group: DistContext) -> Iterator[ForwardFn]:
    """Inside, the towers of `net` are shared by the `group`; behind, they are whole again, with what they learned.
    Gives the training pass of the net so shared.

    A reader that does not learn stays whole: it reads each sentence once, not everybody at the same time.
    """
    full_clip = net.encoder.clip
    tensors = chain(full_clip.parameters(), full_clip.buffers())
    # The same modules once more around the same tensors: no tower is in memory twice.
    net.encoder.clip = copy.deepcopy(full_clip, {id(tensor): tensor for tensor in tensors})
    forward_fn = _shard_net(net, precision, group)
    pairs = list(zip(full_clip.parameters(), net.encoder.clip.parameters(), strict=True))
    sharded_params = [(full_param, shard) for full_param, shard in pairs if isinstance(shard, DTensor)]
    for full_param, _ in sharded_params:
        full_param.data = torch.empty(0)
    yield lambda batch, images: TrainingOutputs(**forward_fn(batch, images))
    for full_param, shard in sharded_params:
        full_param.data = full_tensor(shard.detach())
    net.encoder.clip = full_clip.to(memory_format=torch.channels_last)


def _shard_net(net: ProgressNet, precision: Precision, group: DistContext) -> ShardedForward:
    """Cut the towers up, for the training pass that this gives."""
    net.encoder.clip.to(memory_format=torch.contiguous_format)  # all that FSDP takes
    forward_fn = ShardedForward(net, precision)
    towers = net.encoder.clip if net.encoder.config.trainable else net.encoder.clip.visual
    sharded_params = {p for p in towers.parameters() if p.ndim}  # it takes no scalars either
    param_dtype = torch.bfloat16 if precision == "bfloat16" else None
    policy = MixedPrecisionPolicy(param_dtype=param_dtype, reduce_dtype=torch.float32)
    mesh = init_device_mesh(net.view_embedding.device.type, (group.world_size,))
    for module in (*_block_modules(towers), forward_fn):
        sharded_module = fully_shard(
            module, mesh=mesh, mp_policy=policy, ignored_params=set(forward_fn.parameters()) - sharded_params
        )
        # Everybody's gradients are parts of one sum, not of a mean.
        sharded_module.set_gradient_divide_factor(1.0)
        sharded_module.set_force_sum_reduction_for_comms(True)
    return forward_fn


def _block_modules(towers: nn.Module) -> list[nn.Module]:
    """What is gathered by itself, inner ones first."""
    block_lists = [module for name, module in towers.named_modules() if name.split(".")[-1] in BLOCK_LIST_NAMES]
    return [
        block
        for block_list in reversed(block_lists)
        if isinstance(block_list, nn.ModuleList | nn.Sequential)
        for block in block_list
    ]


def local_shard(tensor: Tensor) -> Tensor:
    """What this process holds of a tensor."""
    return tensor.to_local() if isinstance(tensor, DTensor) else tensor


def full_tensor(tensor: Tensor) -> Tensor:
    """All of a tensor; everybody has to ask for it."""
    return tensor.full_tensor() if isinstance(tensor, DTensor) else tensor


def distribute_like(template: Tensor, value: Tensor) -> Tensor:
    """A whole tensor, cut and in the memory as another one is: the fused optimizer walks memory."""
    if isinstance(template, DTensor):
        return distribute_tensor(value, template.device_mesh, template.placements, src_data_rank=None)
    return torch.empty_like(template).copy_(value)
