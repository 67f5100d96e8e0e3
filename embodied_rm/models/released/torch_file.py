"""Weights in a file that `torch.save` wrote, read without running anything that is in it.

Such a file is a zip archive with a pickle, which says by opcodes what is to be built, and the raw bytes of tensors. The
opcodes are read here, never obeyed: what they may build is containers, numbers, text and tensors. Everything else they
name becomes `Foreign`, whose state can be looked at and nothing more.
"""

from __future__ import annotations

import math
import pickletools
import zipfile
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

from embodied_rm.errors import CheckpointError

DTYPES = {
    "DoubleStorage": torch.float64,
    "FloatStorage": torch.float32,
    "HalfStorage": torch.float16,
    "BFloat16Storage": torch.bfloat16,
    "LongStorage": torch.int64,
    "IntStorage": torch.int32,
    "ShortStorage": torch.int16,
    "CharStorage": torch.int8,
    "ByteStorage": torch.uint8,
    "BoolStorage": torch.bool,
}
LARGEST_PICKLE = 64 * 2**20
"""Bytes: the pickle holds names and shapes, no weights."""


class Name(NamedTuple):
    """A class or function that the pickle names; never looked up."""

    module: str
    name: str


@dataclass
class Foreign:
    """An object of a class that is not built."""

    of: Name
    state: Any = None


@dataclass
class _Machine:
    """The pickle's stack and memo."""

    stack: list[Any] = field(default_factory=list)
    marks: list[int] = field(default_factory=list)
    memo: dict[int, Any] = field(default_factory=dict)

    def since_mark(self) -> list[Any]:
        """What was put on the stack since the last mark, taken off."""
        start = self.marks.pop()
        taken, self.stack[start:] = self.stack[start:], []
        return taken


def read_torch_file(path: Path) -> Any:
    """What was saved: containers of tensors, numbers and text. Raises `CheckpointError` naming the file and its fault.

    Only the zip form is read, which torch has written since 1.6.
    """
    try:
        with zipfile.ZipFile(path) as archive:
            return _Reader(archive).read()
    except (OSError, zipfile.BadZipFile) as fault:
        raise CheckpointError(f"{path}: not a file of torch.save, or one from before torch 1.6 ({fault})") from None
    except (ValueError, KeyError, IndexError, TypeError, AttributeError, RuntimeError, OverflowError) as fault:
        raise CheckpointError(f"{path}: cannot be read without running what is in it ({fault!r})") from None


class _Reader:
    """One archive."""

    def __init__(self, archive: zipfile.ZipFile) -> None:
        self._archive, self._machine = archive, _Machine()
        (pickled,) = (name for name in archive.namelist() if name.endswith("/data.pkl"))
        self._root, self._pickle = pickled.removesuffix("data.pkl"), pickled

    def read(self) -> Any:
        if self._archive.getinfo(self._pickle).file_size > LARGEST_PICKLE:
            raise ValueError(f"its description is longer than {LARGEST_PICKLE} bytes")
        for opcode, argument, _ in pickletools.genops(self._archive.read(self._pickle)):
            if opcode.name == "STOP":
                break
            self._obey(opcode.name, argument)
        return self._machine.stack.pop()

    def _obey(self, name: str, argument: Any) -> None:
        machine = self._machine
        if name in PUSHED:
            machine.stack.append(argument if PUSHED[name] is None else PUSHED[name]())  # type: ignore[misc]
        elif name in ("PROTO", "FRAME"):
            return
        elif name == "MARK":
            machine.marks.append(len(machine.stack))
        elif name in ("BINPUT", "LONG_BINPUT", "PUT"):
            machine.memo[argument] = machine.stack[-1]
        elif name == "MEMOIZE":
            machine.memo[len(machine.memo)] = machine.stack[-1]
        elif name in ("BINGET", "LONG_BINGET", "GET"):
            machine.stack.append(machine.memo[argument])
        elif name == "GLOBAL":
            machine.stack.append(Name(*argument.split(" ", 1)))
        elif name in BUILDERS:
            BUILDERS[name](machine)
        elif name == "BINPERSID":
            machine.stack.append(self._storage(machine.stack.pop()))
        elif name in ("REDUCE", "NEWOBJ"):
            arguments, called = machine.stack.pop(), machine.stack.pop()
            machine.stack.append(_made(called, arguments))
        else:
            raise ValueError(f"opcode {name}")

    def _storage(self, told: tuple[Any, ...]) -> Tensor:
        """All numbers of a storage, flat."""
        kind, (_, name), key, _, count = told
        if kind != "storage" or "/" in str(key) or ".." in str(key):
            raise ValueError(f"storage {told!r}")
        if self._archive.getinfo(f"{self._root}data/{key}").compress_type != zipfile.ZIP_STORED:
            raise ValueError(f"storage {key} is compressed, which torch.save never does")
        raw = self._archive.read(f"{self._root}data/{key}")
        dtype = DTYPES[name]
        if len(raw) != count * dtype.itemsize:
            raise ValueError(f"storage {key} has {len(raw)} bytes, not {count} numbers")
        return torch.frombuffer(bytearray(raw), dtype=dtype) if raw else torch.zeros(0, dtype=dtype)


def _made(called: Any, arguments: tuple[Any, ...]) -> Any:
    """What a call would have given, of the three calls that only build containers and tensors."""
    if not isinstance(called, Name):
        raise ValueError(f"a call of {called!r}")
    if called == ("collections", "OrderedDict"):
        return dict(*arguments)
    if called == ("torch._utils", "_rebuild_tensor_v2"):
        storage, offset, size, stride = arguments[:4]
        if math.prod(size) > len(storage):
            raise ValueError(f"a tensor {size} of {len(storage)} numbers")
        return torch.as_strided(storage, size, stride, offset).clone()
    if called == ("torch._utils", "_rebuild_parameter"):
        return arguments[0]
    return Foreign(called)


def _set_items(machine: _Machine) -> None:
    flat = machine.since_mark()
    machine.stack[-1].update(zip(flat[::2], flat[1::2], strict=True))


def _set_item(machine: _Machine) -> None:
    value, key = machine.stack.pop(), machine.stack.pop()
    machine.stack[-1][key] = value


def _append(machine: _Machine) -> None:
    value = machine.stack.pop()
    machine.stack[-1].append(value)


def _extend(machine: _Machine) -> None:
    taken = machine.since_mark()
    machine.stack[-1].extend(taken)


def _build(machine: _Machine) -> None:
    """The state of what is not built is kept; that of a dictionary (a state dict's `_metadata`) says nothing here."""
    state = machine.stack.pop()
    if isinstance(machine.stack[-1], Foreign):
        machine.stack[-1].state = state


def _tuple_of(count: int) -> Callable[[_Machine], None]:
    def build(machine: _Machine) -> None:
        taken, machine.stack[-count:] = tuple(machine.stack[-count:]), []
        machine.stack.append(taken)

    return build


PUSHED: dict[str, Callable[[], Any] | None] = {
    **dict.fromkeys(("BININT", "BININT1", "BININT2", "LONG1", "LONG4", "INT", "LONG", "BINFLOAT", "FLOAT")),
    **dict.fromkeys(("BINUNICODE", "SHORT_BINUNICODE", "BINUNICODE8", "UNICODE", "BINSTRING", "SHORT_BINSTRING")),
    **dict.fromkeys(("BINBYTES", "SHORT_BINBYTES", "BINBYTES8")),
    "NONE": lambda: None,
    "NEWTRUE": lambda: True,
    "NEWFALSE": lambda: False,
    "EMPTY_DICT": dict,
    "EMPTY_LIST": list,
    "EMPTY_TUPLE": tuple,
    "EMPTY_SET": set,
}
"""Opcodes that put a value on the stack: their argument (None), or what is made."""
BUILDERS: dict[str, Callable[[_Machine], None]] = {
    "TUPLE": lambda machine: machine.stack.append(tuple(machine.since_mark())),
    "LIST": lambda machine: machine.stack.append(machine.since_mark()),
    "TUPLE1": _tuple_of(1),
    "TUPLE2": _tuple_of(2),
    "TUPLE3": _tuple_of(3),
    "SETITEM": _set_item,
    "SETITEMS": _set_items,
    "APPEND": _append,
    "APPENDS": _extend,
    "BUILD": _build,
    "POP": lambda machine: machine.stack.pop(),
}
