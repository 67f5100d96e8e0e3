"""Read weights from a file of `torch.save` without executing its content.

Such a file has a pickle and the raw bytes of tensors, in a zip archive or, before torch 1.6, one after the other. The
opcodes of the pickle are interpreted here. They can only create containers, numbers, text and tensors. Every other
object becomes an `UnresolvedObject`.
"""

import math
import os
import pickletools
import zipfile
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

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
LEGACY_MAGIC, LEGACY_VERSION = 0x1950A86A20F9469CFC6C, 1001
MAX_PICKLE_BYTES = 64 * 2**20  # maximum size of the pickle, which holds names and shapes but no weights


class GlobalName(NamedTuple):
    """Name of a class or function in the pickle. It is never imported."""

    module: str
    name: str


class StorageId(NamedTuple):
    """A storage that a pickle refers to."""

    key: str
    dtype: torch.dtype
    num_elements: int

    @property
    def num_bytes(self) -> int:
        """Size of the storage."""
        return self.num_elements * self.dtype.itemsize


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
    """Read the object in a file of `torch.save`: the zip format, or the one from before torch 1.6.

    Returns containers of tensors, numbers and text; other objects are `UnresolvedObject`. `CheckpointError` if the
    file cannot be read.
    """
    try:
        if zipfile.is_zipfile(path):
            with zipfile.ZipFile(path) as archive:
                return _read_archive(archive)
        with path.open("rb") as file:
            return _read_legacy(file)
    except (OSError, zipfile.BadZipFile) as error:
        raise CheckpointError(f"{path}: not a file of torch.save ({error})") from None
    except (ValueError, KeyError, IndexError, TypeError, AttributeError, RuntimeError, OverflowError) as error:
        raise CheckpointError(f"{path}: cannot be read without executing its content ({error!r})") from None


def _read_archive(archive: zipfile.ZipFile) -> Any:
    (pickle_path,) = (name for name in archive.namelist() if name.endswith("/data.pkl"))
    root = pickle_path.removesuffix("data.pkl")
    if archive.getinfo(pickle_path).file_size > MAX_PICKLE_BYTES:
        raise ValueError(f"its pickle is longer than {MAX_PICKLE_BYTES} bytes")

    def read_storage(storage: StorageId) -> bytes:
        if "/" in storage.key or ".." in storage.key:
            raise ValueError(f"storage {storage.key!r}")
        if archive.getinfo(f"{root}data/{storage.key}").compress_type != zipfile.ZIP_STORED:
            raise ValueError(f"storage {storage.key} is compressed, unlike those of torch.save")
        return archive.read(f"{root}data/{storage.key}")

    return _run_pickle(archive.read(pickle_path), read_storage)


def _read_legacy(file: BinaryIO) -> Any:
    """Read four pickles (magic number, version, machine, object), the keys of the storages, and their numbers.

    The object is built twice: once to learn the types of the storages, which follow it, and once with their numbers.
    """
    if (magic := _run_pickle(file)) != LEGACY_MAGIC or _run_pickle(file) != LEGACY_VERSION:
        raise ValueError(f"magic number {magic!r}")
    if not _run_pickle(file)["little_endian"]:
        raise ValueError("it was written on a big-endian machine")
    start, file_bytes, storages = file.tell(), os.fstat(file.fileno()).st_size, dict[str, StorageId]()

    def note_storage(storage: StorageId) -> bytes:
        storages[storage.key] = storage
        if sum(known.num_bytes for known in storages.values()) > file_bytes:
            raise ValueError(f"its storages are longer than its {file_bytes} bytes")
        return bytes(storage.num_bytes)

    _run_pickle(file, note_storage)
    numbers: dict[str, bytes] = {}
    for key in _run_pickle(file):
        count = int.from_bytes(file.read(8), "little", signed=True)
        if count * storages[key].dtype.itemsize != storages[key].num_bytes:
            raise ValueError(f"storage {key} has {count} numbers, not {storages[key].num_elements}")
        numbers[key] = file.read(storages[key].num_bytes)
    file.seek(start)
    return _run_pickle(file, lambda storage: numbers[storage.key])


def _no_storage(storage: StorageId) -> bytes:
    raise ValueError(f"storage {storage.key} outside of the object")


def _run_pickle(pickle: bytes | BinaryIO, read_storage: Callable[[StorageId], bytes] = _no_storage) -> Any:
    """Interpret a pickle up to its end; `read_storage` returns the bytes of a storage."""
    machine = _PickleMachine()
    for opcode, argument, _ in pickletools.genops(pickle):
        if opcode.name == "STOP":
            break
        if opcode.name == "BINPERSID":
            machine.stack.append(_load_storage(machine.stack.pop(), read_storage))
        else:
            _execute(machine, opcode.name, argument)
    return machine.stack.pop()


def _execute(machine: _PickleMachine, name: str, argument: Any) -> None:
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
    elif name in ("REDUCE", "NEWOBJ"):
        arguments, function = machine.stack.pop(), machine.stack.pop()
        machine.stack.append(_call(function, arguments))
    else:
        raise ValueError(f"opcode {name}")


def _load_storage(persistent_id: tuple[Any, ...], read_storage: Callable[[StorageId], bytes]) -> Tensor:
    """Return all numbers of a storage, flat."""
    kind, (_, type_name), key, _, num_elements = persistent_id[:5]
    if kind != "storage" or any(part is not None for part in persistent_id[5:]):
        raise ValueError(f"storage {persistent_id!r}")
    storage = StorageId(str(key), STORAGE_DTYPES[type_name], num_elements)
    raw = read_storage(storage)
    if len(raw) != storage.num_bytes:
        raise ValueError(f"storage {key} has {len(raw)} bytes, not {num_elements} numbers")
    return torch.frombuffer(bytearray(raw), dtype=storage.dtype) if raw else torch.zeros(0, dtype=storage.dtype)


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
