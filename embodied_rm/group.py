"""Several processes that learn together: each works on its share of a batch, all learn from all of it.

Every process holds the same learner and draws the same random numbers for the whole batch, of which it uses its share;
gradients of the shares are added up. So a run is the same, up to the rounding of sums, in how many parts it is done.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
import torch.distributed as dist
from safetensors.numpy import load as parse_arrays
from safetensors.numpy import save as serialise_arrays
from torch import Tensor

from embodied_rm.errors import UserError
from embodied_rm.run import processes

PATIENCE = timedelta(days=7)
"""For the others, who may be judging; torchrun itself ends a group with a dead member."""


@dataclass(frozen=True, kw_only=True)
class Group:
    """The processes of a run, seen from one of them."""

    rank: int = 0
    size: int = 1

    def share(self, count: int, what: str = "world.num_envs") -> int:
        """This process's part of all worlds, or of what else a key counts. Raises `UserError` when they cannot be
        divided evenly."""
        if count % self.size:
            raise UserError(f"{what}={count} cannot be shared evenly by {self.size} processes")
        return count // self.size

    def rows(self, share: int) -> slice:
        """Which of everybody's rows are this process's, which has `share` of them."""
        return slice(self.rank * share, (self.rank + 1) * share)

    def seeds(self, seed: int, share: int) -> int | list[int]:
        """What worlds are reset with so that all are the ones that a single process would have from `seed`."""
        return seed if self.size == 1 else list(range(seed + self.rank * share, seed + (self.rank + 1) * share))

    def minibatches(self, wanted: int, rows: int) -> int:
        """So many minibatches, or fewer if they would not have a row for everybody.

        Raises `UserError` when there are fewer rows than processes.
        """
        if rows < self.size:
            raise UserError(f"{rows} transitions cannot be shared by {self.size} processes: set rollout_steps higher")
        return min(wanted, rows // self.size)

    def shard(self, rows: Tensor) -> Tensor:
        """This process's part of a minibatch."""
        return rows.tensor_split(self.size)[self.rank]

    def all_reduce(self, tensors: Iterable[Tensor]) -> None:
        """Replace each tensor by the sum of everybody's."""
        if self.size == 1:
            return
        several = list(tensors)
        flat = torch.cat([tensor.flatten() for tensor in several])
        dist.all_reduce(flat)
        for tensor, total in zip(several, flat.split([t.numel() for t in several]), strict=True):
            tensor.copy_(total.view_as(tensor))

    def all_gather(self, content: bytes) -> list[bytes]:
        """What everybody gives, in the order of their ranks."""
        if self.size == 1:
            return [content]
        device = torch.device("cuda" if dist.get_backend() == "nccl" else "cpu")
        length = torch.tensor([len(content)], device=device)
        lengths = [torch.zeros_like(length) for _ in range(self.size)]
        dist.all_gather(lengths, length)
        mine = torch.zeros(max(map(int, lengths)), dtype=torch.uint8, device=device)
        mine[: len(content)] = torch.frombuffer(bytearray(content), dtype=torch.uint8).to(device)
        given = [torch.zeros_like(mine) for _ in range(self.size)]
        dist.all_gather(given, mine)
        return [bytes(one[:count].cpu().numpy()) for one, count in zip(given, map(int, lengths), strict=True)]

    def gathered(self, mine: Tensor, dim: int) -> Tensor:
        """Everybody's tensors, of one shape, side by side along a dimension; gradients go through this process's."""
        if self.size == 1:
            return mine
        parts = [torch.empty_like(mine) for _ in range(self.size)]
        dist.all_gather(parts, mine.detach().contiguous())
        parts[self.rank] = mine
        return torch.cat(parts, dim=dim)

    def say(self, value: Any) -> list[Any]:
        """What everybody says, anything that JSON can say."""
        return [json.loads(content) for content in self.all_gather(json.dumps(value).encode())]

    def side_by_side(self, arrays: Mapping[str, npt.NDArray[Any]]) -> dict[str, npt.NDArray[Any]]:
        """Everybody's arrays [T, N, ...] by name, as [T, size * N, ...]."""
        if self.size == 1:
            return dict(arrays)
        content = serialise_arrays({name: np.ascontiguousarray(array) for name, array in arrays.items()})
        parts = [parse_arrays(one) for one in self.all_gather(content)]
        return {name: np.concatenate([part[name] for part in parts], axis=1) for name in arrays}


ALONE = Group()
"""One process."""


@contextmanager
def joined(device: str) -> Iterator[Group]:
    """The processes that torchrun started, met over gloo, or where networks run on CUDA, NCCL, one GPU each; `ALONE`
    without it. Raises `UserError` when there are fewer GPUs than processes."""
    rank, size = processes()
    if size == 1:
        yield ALONE
        return
    if device == "cuda":
        local, gpus = int(os.environ["LOCAL_RANK"]), torch.cuda.device_count()
        if local >= gpus:
            raise UserError(f"{size} processes need a GPU each, this machine has {gpus}")
        torch.cuda.set_device(local)
    dist.init_process_group("nccl" if device == "cuda" else "gloo", timeout=PATIENCE)
    try:
        yield Group(rank=rank, size=size)
    finally:
        dist.destroy_process_group()
