"""Limits on the tensors that a description makes: a manifest of 2 kB can describe a network of a petabyte.

The description comes with weights, and a network of other weights is refused anyway. So its size is bounded by theirs,
before memory is taken.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from embodied_rm.errors import CheckpointError

MAX_STORED_RATIO = 4
"""Largest ratio of the bytes that are made to those that are stored: weights of half precision become twice as large,
and later layers of a tower are made and then removed."""
MARGIN_BYTES = 1 << 26  # bytes that any description may make: those of removed layers and of attention masks
MAX_OPERATIONS_PER_TENSOR = 50  # operations of torch that make one weight; the towers of timm take up to 22
MARGIN_OPERATIONS = 4_000  # operations that any description may cause
META = torch.device("meta")

SizeFn = Callable[..., int]


class BuildLimit(TorchDispatchMode):
    """While active in a thread, counts what its operations of torch make. Its end raises `CheckpointError` beyond it.

    The operation itself fails too, but a library may hide that or describe it in its own words.
    """

    def __init__(self, source: Path | str, stored_bytes: int, stored_tensors: int) -> None:
        """`source` is that of the weights, for the error."""
        super().__init__()
        self._source = source
        self._stored = f"{stored_tensors} weights of {stored_bytes} bytes"
        self._bytes_left = MAX_STORED_RATIO * stored_bytes + MARGIN_BYTES
        self._operations_left = MAX_OPERATIONS_PER_TENSOR * stored_tensors + MARGIN_OPERATIONS

    def __torch_dispatch__(
        self, func: Any, types: Sequence[type], args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        """Run an operation, unless it exceeds a limit."""
        options = kwargs or {}
        self._bytes_left -= allocated_bytes(func.overloadpacket.__name__, args, options)
        self._operations_left -= 1
        if self._is_exceeded:
            raise MemoryError("a larger network than its weights can fill")
        return func(*args, **options)

    def __exit__(self, *error: Any) -> None:
        super().__exit__(*error)
        if self._is_exceeded:
            raise CheckpointError(f"{self._source}: describes a larger network than its {self._stored} fill") from None

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """Keep torch from importing its compiler at the first operation: each start of a command would pay for that."""
        return False

    @property
    def _is_exceeded(self) -> bool:
        return self._bytes_left < 0 or self._operations_left < 0


def limit_build(tensors: Mapping[str, Tensor], source: Path | str) -> BuildLimit:
    """Return the limit for a network whose weights are `tensors`."""
    return BuildLimit(source, sum(tensor.nbytes for tensor in tensors.values()), len(tensors))


def allocated_bytes(name: str, args: Sequence[Any], options: Mapping[str, Any]) -> int:
    """Return the bytes that an operation allocates, by its arguments; 0 for one that computes from other tensors."""
    like = args[0] if args and isinstance(args[0], Tensor) else None
    size = _size(name, args)
    device = options.get("device") or (None if like is None else like.device)
    if size is None or (device is not None and torch.device(device) == META):
        return 0
    dtype = options.get("dtype") or (torch.get_default_dtype() if like is None else like.dtype)
    return size * int(dtype.itemsize)


def _size(name: str, args: Sequence[Any]) -> int | None:
    """Return the number of elements that an operation allocates; None for one that computes from other tensors."""
    if name in SIZES:
        return SIZES[name](*args)
    if name == "clone" or name.endswith("_like"):
        return int(args[0].numel())
    return None


def _product(shape: Sequence[int], *_: Any) -> int:
    return math.prod(shape)


def _range(*bounds: float) -> int:
    start, end, step = (0, *bounds, 1) if len(bounds) == 1 else (*bounds, 1)[:3]
    return max(0, math.ceil((end - start) / step))


SIZES: Mapping[str, SizeFn] = {
    **dict.fromkeys(("empty", "empty_strided", "zeros", "ones", "full", "rand", "randn"), _product),
    **dict.fromkeys(
        ("new_empty", "new_empty_strided", "new_zeros", "new_ones", "new_full"), lambda _, shape, *__: _product(shape)
    ),
    "randint": lambda *args: next(_product(arg) for arg in args if isinstance(arg, Sequence)),
    "arange": _range,
    "linspace": lambda _start, _end, steps: int(steps),
    "eye": lambda rows, columns=None: int(rows) * int(columns or rows),
    "repeat": lambda tensor, repeats: int(tensor.numel()) * _product(repeats),
}
"""Operation of torch -> the number of elements that it allocates, from its arguments."""
