"""Read weights from a file of `torch.save` without executing its content.

Such a file is a zip archive with a pickle and the raw bytes of tensors. The opcodes of the pickle are interpreted here.
They can only create containers, numbers, text and tensors. Every other object becomes an `UnresolvedObject`.
"""

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

STORAGE_DTYPES = {
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
MAX_PICKLE_BYTES = 64 * 2**20  # maximum size of the pickle, which holds names and shapes but no weights


class GlobalName(NamedTuple):
    """Name of a class or function in the pickle. It is never imported."""

    module: str
    name: str


@dataclass
class UnresolvedObject:
    """An object of a class that is not imported, and its state."""

    global_name: GlobalName
    state: Any = None


@dataclass
class _PickleMachine:
    """The pickle's stack and memo."""

    stack: list[Any] = field(default_factory=list)
    marks: list[int] = field(default_factory=list)
    memo: dict[int, Any] = field(default_factory=dict)

    def pop_mark(self) -> list[Any]:
        """Remove and return the items on the stack since the last mark."""
        start = self.marks.pop()
        items, self.stack[start:] = self.stack[start:], []
        return items


def read_torch_file(path: Path) -> Any:
    """Read the object in a file of `torch.save`, in the zip format of torch 1.6 or later.

    Returns containers of tensors, numbers and text; other objects are `UnresolvedObject`. `CheckpointError` if the
    file cannot be read.
    """
    try:
        with zipfile.ZipFile(path) as archive:
            return _ArchiveReader(archive).read()
    except (OSError, zipfile.BadZipFile) as error:
        raise CheckpointError(f"{path}: not a file of torch.save, or one from before torch 1.6 ({error})") from None
    except (ValueError, KeyError, IndexError, TypeError, AttributeError, RuntimeError, OverflowError) as error:
        raise CheckpointError(f"{path}: cannot be read without executing its content ({error!r})") from None


class _ArchiveReader:
    """Interpreter of the pickle in one archive."""

    def __init__(self, archive: zipfile.ZipFile) -> None:
        self._archive, self._machine = archive, _PickleMachine()
        (pickle_path,) = (name for name in archive.namelist() if name.endswith("/data.pkl"))
        self._root, self._pickle_path = pickle_path.removesuffix("data.pkl"), pickle_path

    def read(self) -> Any:
        if self._archive.getinfo(self._pickle_path).file_size > MAX_PICKLE_BYTES:
            raise ValueError(f"its pickle is longer than {MAX_PICKLE_BYTES} bytes")
        for opcode, argument, _ in pickletools.genops(self._archive.read(self._pickle_path)):
            if opcode.name == "STOP":
                break
            self._execute(opcode.name, argument)
        return self._machine.stack.pop()

    def _execute(self, name: str, argument: Any) -> None:
        machine = self._machine
        if name in PUSH_OPCODES:
            machine.stack.append(argument if PUSH_OPCODES[name] is None else PUSH_OPCODES[name]())  # type: ignore[misc]
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
            machine.stack.append(GlobalName(*argument.split(" ", 1)))
        elif name in OPCODE_HANDLERS:
            OPCODE_HANDLERS[name](machine)
        elif name == "BINPERSID":
            machine.stack.append(self._load_storage(machine.stack.pop()))
        elif name in ("REDUCE", "NEWOBJ"):
            arguments, function = machine.stack.pop(), machine.stack.pop()
            machine.stack.append(_call(function, arguments))
        else:
            raise ValueError(f"opcode {name}")

    def _load_storage(self, persistent_id: tuple[Any, ...]) -> Tensor:
        """Return all numbers of a storage, flat."""
        kind, (_, name), key, _, num_elements = persistent_id
        if kind != "storage" or "/" in str(key) or ".." in str(key):
            raise ValueError(f"storage {persistent_id!r}")
        if self._archive.getinfo(f"{self._root}data/{key}").compress_type != zipfile.ZIP_STORED:
            raise ValueError(f"storage {key} is compressed, unlike those of torch.save")
        raw = self._archive.read(f"{self._root}data/{key}")
        dtype = STORAGE_DTYPES[name]
        if len(raw) != num_elements * dtype.itemsize:
            raise ValueError(f"storage {key} has {len(raw)} bytes, not {num_elements} numbers")
        return torch.frombuffer(bytearray(raw), dtype=dtype) if raw else torch.zeros(0, dtype=dtype)


def _call(function: Any, arguments: tuple[Any, ...]) -> Any:
    """Return the result of one of the three calls that create containers and tensors, else an `UnresolvedObject`."""
    if not isinstance(function, GlobalName):
        raise ValueError(f"a call of {function!r}")
    if function == ("collections", "OrderedDict"):
        return dict(*arguments)
    if function == ("torch._utils", "_rebuild_tensor_v2"):
        storage, offset, size, stride = arguments[:4]
        if math.prod(size) > len(storage):
            raise ValueError(f"a tensor {size} of {len(storage)} numbers")
        return torch.as_strided(storage, size, stride, offset).clone()
    if function == ("torch._utils", "_rebuild_parameter"):
        return arguments[0]
    return UnresolvedObject(function)


def _set_items(machine: _PickleMachine) -> None:
    flat = machine.pop_mark()
    machine.stack[-1].update(zip(flat[::2], flat[1::2], strict=True))


def _set_item(machine: _PickleMachine) -> None:
    value, key = machine.stack.pop(), machine.stack.pop()
    machine.stack[-1][key] = value


def _append(machine: _PickleMachine) -> None:
    value = machine.stack.pop()
    machine.stack[-1].append(value)


def _extend(machine: _PickleMachine) -> None:
    items = machine.pop_mark()
    machine.stack[-1].extend(items)


def _build(machine: _PickleMachine) -> None:
    """Keep the state of an unresolved object; ignore that of a dictionary (`_metadata` of a state dict)."""
    state = machine.stack.pop()
    if isinstance(machine.stack[-1], UnresolvedObject):
        machine.stack[-1].state = state


def _tuple_of(count: int) -> Callable[[_PickleMachine], None]:
    def build(machine: _PickleMachine) -> None:
        items, machine.stack[-count:] = tuple(machine.stack[-count:]), []
        machine.stack.append(items)

    return build


PUSH_OPCODES: dict[str, Callable[[], Any] | None] = {
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
"""Opcode that pushes a value -> its factory. None: the value is the argument of the opcode."""
OPCODE_HANDLERS: dict[str, Callable[[_PickleMachine], None]] = {
    "TUPLE": lambda machine: machine.stack.append(tuple(machine.pop_mark())),
    "LIST": lambda machine: machine.stack.append(machine.pop_mark()),
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
