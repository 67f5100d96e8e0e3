"""Data-parallel processes: each works on its part of a batch, and all apply the summed gradients.

Every process holds the same model and draws the same random numbers for the whole batch, then uses its own part. A run
is therefore independent of the number of processes, up to the rounding of sums.
"""

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
from safetensors.numpy import save as serialize_arrays
from torch import Tensor

from embodied_rm.environment import rank_and_world_size
from embodied_rm.errors import UserError

COLLECTIVE_TIMEOUT = timedelta(days=7)
"""Other ranks may be scoring for a long time; torchrun itself ends a group that lost a process."""


@dataclass(frozen=True, kw_only=True)
class DistContext:
    """The processes of a run, as seen from one of them."""

    rank: int = 0
    world_size: int = 1

    def local_count(self, count: int, config_key: str = "env.num_envs") -> int:
        """Return this process's part of a total over all processes; `UserError` if they cannot share it evenly."""
        if count % self.world_size:
            raise UserError(f"{config_key}={count} cannot be shared evenly by {self.world_size} processes")
        return count // self.world_size

    def local_rows(self, count: int) -> slice:
        """Return this process's rows of the concatenated rows, with `count` rows per process."""
        return slice(self.rank * count, (self.rank + 1) * count)

    def env_seeds(self, seed: int, count: int) -> int | list[int]:
        """Return reset seeds for `count` local environments, the same ones that a single process would use for them."""
        return seed if self.world_size == 1 else list(range(seed + self.rank * count, seed + (self.rank + 1) * count))

    def num_minibatches(self, requested: int, num_rows: int) -> int:
        """Return the number of minibatches: `requested`, or fewer so that each has a row per process."""
        if num_rows < self.world_size:
            raise UserError(
                f"{num_rows} transitions cannot be shared by {self.world_size} processes: set rollout_steps higher"
            )
        return min(requested, num_rows // self.world_size)

    def shard(self, minibatch: Tensor) -> Tensor:
        """Return this process's part of a minibatch."""
        return minibatch.tensor_split(self.world_size)[self.rank]

    def all_reduce(self, tensors: Iterable[Tensor]) -> None:
        """Replace each tensor by its sum over all processes, in place."""
        if self.world_size == 1:
            return
        tensor_list = list(tensors)
        flat = torch.cat([tensor.flatten() for tensor in tensor_list])
        dist.all_reduce(flat)
        for tensor, summed in zip(tensor_list, flat.split([part.numel() for part in tensor_list]), strict=True):
            tensor.copy_(summed.view_as(tensor))

    def all_gather_bytes(self, content: bytes) -> list[bytes]:
        """Gather bytes from all processes, in rank order."""
        if self.world_size == 1:
            return [content]
        device = torch.device("cuda" if dist.get_backend() == "nccl" else "cpu")
        length = torch.tensor([len(content)], device=device)
        lengths = [torch.zeros_like(length) for _ in range(self.world_size)]
        dist.all_gather(lengths, length)
        padded = torch.zeros(max(map(int, lengths)), dtype=torch.uint8, device=device)
        padded[: len(content)] = torch.frombuffer(bytearray(content), dtype=torch.uint8).to(device)
        buffers = [torch.zeros_like(padded) for _ in range(self.world_size)]
        dist.all_gather(buffers, padded)
        return [
            bytes(buffer[:num_bytes].cpu().numpy())
            for buffer, num_bytes in zip(buffers, map(int, lengths), strict=True)
        ]

    def all_gather_tensor(self, tensor: Tensor, dim: int) -> Tensor:
        """Concatenate tensors of equal shape from all processes along `dim`; only the local part carries gradients."""
        if self.world_size == 1:
            return tensor
        parts = [torch.empty_like(tensor) for _ in range(self.world_size)]
        dist.all_gather(parts, tensor.detach().contiguous())
        parts[self.rank] = tensor
        return torch.cat(parts, dim=dim)

    def all_gather_object(self, value: Any) -> list[Any]:
        """Gather a JSON value from all processes, in rank order."""
        return [json.loads(content) for content in self.all_gather_bytes(json.dumps(value).encode())]

    def concat_env_axis(self, arrays: Mapping[str, npt.NDArray[Any]]) -> dict[str, npt.NDArray[Any]]:
        """Concatenate arrays [T, N, ...] from all processes to [T, world_size * N, ...]."""
        if self.world_size == 1:
            return dict(arrays)
        content = serialize_arrays({name: np.ascontiguousarray(array) for name, array in arrays.items()})
        parts = [parse_arrays(part_bytes) for part_bytes in self.all_gather_bytes(content)]
        return {name: np.concatenate([part[name] for part in parts], axis=1) for name in arrays}


SINGLE_PROCESS = DistContext()  # the context of a run without torchrun


def find_device(name: str, key: str) -> torch.device:
    """Return a torch device. Raises `UserError`, which names the config key, if torch does not have it."""
    if name not in ("cpu", "cuda"):
        raise UserError(f"{key} must be cpu or cuda, got {name}")
    if name == "cuda" and not torch.cuda.is_available():
        raise UserError(
            f"{key}=cuda needs a torch with CUDA that finds a GPU; torch {torch.__version__} here finds none: "
            f"install a CUDA build of torch, or use {key}=cpu"
        )
    return torch.device(name)


@contextmanager
def init_distributed(device: str) -> Iterator[DistContext]:
    """Join the process group started by torchrun; yield `SINGLE_PROCESS` without torchrun.

    The device "cuda" uses NCCL with one GPU per process, any other gloo. Raises `UserError` if GPUs are missing.
    """
    rank, world_size = rank_and_world_size()
    if world_size == 1:
        yield SINGLE_PROCESS
        return
    if device == "cuda":
        local_rank, num_gpus = int(os.environ["LOCAL_RANK"]), torch.cuda.device_count()
        if local_rank >= num_gpus:
            raise UserError(f"{world_size} processes need a GPU each, this machine has {num_gpus}")
        torch.cuda.set_device(local_rank)
    dist.init_process_group("nccl" if device == "cuda" else "gloo", timeout=COLLECTIVE_TIMEOUT)
    try:
        yield DistContext(rank=rank, world_size=world_size)
    finally:
        dist.destroy_process_group()
