"""Several processes that refine one policy: each steps its share of the worlds, all learn from all of them.

Every process holds the same learner and draws the same random numbers for the whole batch, of which it uses its share;
gradients of the shares are added up. So a run is the same, up to the rounding of sums, in how many parts it is done.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
import torch.distributed as dist
from torch import Tensor

from embodied_rm.errors import UserError


@dataclass(frozen=True, kw_only=True)
class Group:
    """The processes of a run, seen from one of them."""

    rank: int = 0
    size: int = 1

    def share(self, total: int) -> int:
        """This process's part of `total` things. Raises `UserError` when it cannot be divided evenly."""
        if total % self.size:
            raise UserError(f"world.num_envs={total} cannot be shared evenly by {self.size} processes")
        return total // self.size

    def rows(self, share: int) -> slice:
        """Which of everybody's rows are this process's, which has `share` of them."""
        return slice(self.rank * share, (self.rank + 1) * share)

    def seeds(self, seed: int, share: int) -> int | list[int]:
        """What worlds are reset with so that all are the ones that a single process would have from `seed`."""
        return seed if self.size == 1 else list(range(seed + self.rank * share, seed + (self.rank + 1) * share))

    def part(self, rows: Tensor) -> Tensor:
        """This process's part of a minibatch. There must be a row for everybody."""
        assert len(rows) >= self.size, "a minibatch has fewer rows than there are processes"
        return rows.tensor_split(self.size)[self.rank]

    def add(self, tensors: Iterable[Tensor]) -> None:
        """Replace each tensor by the sum of everybody's."""
        if self.size == 1:
            return
        several = list(tensors)
        flat = torch.cat([tensor.flatten() for tensor in several])
        dist.all_reduce(flat)
        for tensor, total in zip(several, flat.split([t.numel() for t in several]), strict=True):
            tensor.copy_(total.view_as(tensor))

    def exchange(self, content: bytes) -> list[bytes]:
        """What everybody gives, in the order of their ranks."""
        if self.size == 1:
            return [content]
        device = torch.device("cuda" if dist.get_backend() == "nccl" else "cpu")
        length = torch.tensor([len(content)], device=device)
        lengths = [torch.zeros_like(length) for _ in range(self.size)]
        dist.all_gather(lengths, length)
        longest = max(map(int, lengths))
        mine = torch.zeros(longest, dtype=torch.uint8, device=device)
        mine[: len(content)] = torch.frombuffer(bytearray(content), dtype=torch.uint8).to(device)
        given = [torch.zeros_like(mine) for _ in range(self.size)]
        dist.all_gather(given, mine)
        return [bytes(one[:count].cpu().numpy()) for one, count in zip(given, map(int, lengths), strict=True)]

    def tell(self, value: Any) -> list[Any]:
        """What everybody says, anything that JSON can say."""
        return [json.loads(content) for content in self.exchange(json.dumps(value).encode())]

    def gather(self, array: npt.NDArray[Any], axis: int) -> npt.NDArray[Any]:
        """Everybody's arrays, of one shape, one after the other along `axis`."""
        if self.size == 1:
            return array
        contents = self.exchange(np.ascontiguousarray(array).tobytes())
        return np.concatenate([np.frombuffer(one, array.dtype).reshape(array.shape) for one in contents], axis=axis)


ALONE = Group()
"""One process."""


def launched() -> Group:
    """The processes that torchrun started, as it tells in the environment; `ALONE` without it."""
    return Group(rank=int(os.environ.get("RANK", "0")), size=int(os.environ.get("WORLD_SIZE", "1")))


def join(device: str) -> Group:
    """Meet the other processes, if there are any: over gloo, or where networks run on CUDA, NCCL, one GPU each."""
    group = launched()
    if group.size > 1:
        if device == "cuda":
            torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
        dist.init_process_group("nccl" if device == "cuda" else "gloo")
    return group
