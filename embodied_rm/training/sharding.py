"""Sharding of the towers with FSDP2: each process holds a shard of every weight, gradient and Adam moment.

A block of weights is gathered when it runs. The net on top of the towers is small and replicated. torch's modules for
this take a second to import, so only functions that shard import them.
"""

from __future__ import annotations

import copy
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import chain
from typing import TYPE_CHECKING, TypeGuard

import torch
from torch import Tensor, nn

from embodied_rm.distributed import DistContext
from embodied_rm.models.progress_net import ProgressNet
from embodied_rm.training.batches import LabeledBatch
from embodied_rm.training.forward import ForwardFn, Precision, TrainingImages, TrainingOutputs, training_forward

if TYPE_CHECKING:
    from torch.distributed.tensor import DTensor

BLOCK_LIST_NAMES = ("blocks", "resblocks", "layers", "layer", "stages")
"""Names of the lists of blocks in towers of timm, open_clip and `transformers`. Blocks run one after the other, so only
one has to be gathered at a time."""


class ShardedForward(nn.Module):
    """`training_forward` as a module: FSDP gathers weights before it and frees them after it."""

    def __init__(self, net: ProgressNet, precision: Precision) -> None:
        super().__init__()
        self.net, self.precision = net, precision

    def forward(self, batch: LabeledBatch, images: TrainingImages) -> dict[str, Tensor]:
        """Return the fields of the outputs as a dict, in which FSDP finds tensors."""
        outputs = vars(training_forward(self.net, batch, images, self.precision))
        return {name: value.clone() for name, value in outputs.items()}  # views would lose the hooks


@contextmanager
def shard_towers(net: ProgressNet, precision: Precision, group: DistContext) -> Iterator[ForwardFn]:
    """Shard the towers of `net` inside the context and yield its forward function; then restore the trained towers.

    A frozen text tower stays replicated, because the processes do not encode the same instructions together.
    """
    full_clip = net.encoder.clip
    tensors = chain(full_clip.parameters(), full_clip.buffers())
    # The copy has new modules with the same tensors, so no tower is in memory twice.
    net.encoder.clip = copy.deepcopy(full_clip, {id(tensor): tensor for tensor in tensors})
    forward_fn = _shard_net(net, precision, group)
    pairs = list(zip(full_clip.parameters(), net.encoder.clip.parameters(), strict=True))
    sharded_params = [(full_param, shard) for full_param, shard in pairs if is_sharded(shard)]
    for full_param, _ in sharded_params:
        full_param.data = torch.empty(0)
    yield lambda batch, images: TrainingOutputs(**forward_fn(batch, images))
    for full_param, shard in sharded_params:
        full_param.data = full_tensor(shard.detach())
    net.encoder.clip = full_clip.to(memory_format=torch.channels_last)


def _shard_net(net: ProgressNet, precision: Precision, group: DistContext) -> ShardedForward:
    """Shard the towers and return the forward module."""
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

    net.encoder.clip.to(memory_format=torch.contiguous_format)  # FSDP supports no other format
    forward_fn = ShardedForward(net, precision)
    towers = net.encoder.clip if net.encoder.config.trains_text else net.encoder.clip.visual
    sharded_params = {p for p in towers.parameters() if p.ndim}  # FSDP supports no scalars
    param_dtype = torch.bfloat16 if precision == "bfloat16" else None
    policy = MixedPrecisionPolicy(param_dtype=param_dtype, reduce_dtype=torch.float32)
    mesh = init_device_mesh(net.view_embedding.device.type, (group.world_size,))
    for module in (*_block_modules(towers), forward_fn):
        ignored = set(forward_fn.parameters()) - sharded_params
        sharded_module = fully_shard(module, mesh=mesh, mp_policy=policy, ignored_params=ignored)
        # The gradients of the processes are summed, not averaged.
        sharded_module.set_gradient_divide_factor(1.0)
        sharded_module.set_force_sum_reduction_for_comms(True)
    return forward_fn


def _block_modules(towers: nn.Module) -> list[nn.Module]:
    """Return the modules that are gathered separately, inner ones first."""
    named = [module for name, module in towers.named_modules() if name.split(".")[-1] in BLOCK_LIST_NAMES]
    block_lists = [module for module in reversed(named) if isinstance(module, nn.ModuleList | nn.Sequential)]
    return [block for block_list in block_lists for block in block_list]


def is_sharded(tensor: Tensor) -> TypeGuard[DTensor]:
    """Return whether each process holds a shard of the tensor."""
    module = sys.modules.get("torch.distributed.tensor")
    return module is not None and isinstance(tensor, module.DTensor)


def local_shard(tensor: Tensor) -> Tensor:
    """Return the shard of this process."""
    return tensor.to_local() if is_sharded(tensor) else tensor


def full_tensor(tensor: Tensor) -> Tensor:
    """Return the full tensor; all processes must call this."""
    return tensor.full_tensor() if is_sharded(tensor) else tensor


def distribute_like(template: Tensor, value: Tensor) -> Tensor:
    """Shard and lay out a full tensor like `template`: the fused optimizer needs equal memory layouts."""
    if is_sharded(template):
        from torch.distributed.tensor import distribute_tensor

        return distribute_tensor(value, template.device_mesh, template.placements, src_data_rank=None)
    return torch.empty_like(template).copy_(value)
