"""Read weights from a file of `torch.save` without executing its content.

Such a file has a pickle and the raw bytes of tensors, in a zip archive or, before torch 1.6, one after the other. The
opcodes of the pickle are interpreted here. They can only create containers, numbers, text and tensors. Every other
object becomes an `UnresolvedObject`.

Time and memory are linear in the bytes of the file: nothing is decompressed, each storage is read once, tensors are
views of storages, and no container is hashed or printed, since a few bytes can describe one with 2^40 paths.
"""

import math
import os
import pickletools
import zipfile
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

import torch
from torch import Tensor

from embodied_rm.checkpoint_io import check_regular_file
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
MAX_OPCODES = 1_000_000  # of one pickle: a weight takes about twenty, and each creates at most one object
MAX_INTEGER = 2**127
MAX_KEY_INTEGER = 2**61 - 2  # of an integer that is a key: larger ones can share a hash
MAX_DIMENSIONS = 64  # as in torch
KEY_TYPES = (str, int, float, type(None))  # of the keys of dictionaries
MAX_KEYS, MAX_TEXT_LENGTH = 8, 200  # of the content that an error message quotes


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
    """The pickle's stack and memo, and the storages that it refers to."""

    read_storage: Callable[[StorageId], bytes]
    free_bytes: int  # that further storages may have
    storages: dict[StorageId, Tensor] = field(default_factory=dict)
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
    check_regular_file(path)
    try:
        if zipfile.is_zipfile(path):
            with zipfile.ZipFile(path) as archive:
                return _read_archive(archive, path.stat().st_size)
        with path.open("rb") as file:
            return _read_legacy(file)
    except (OSError, zipfile.BadZipFile) as error:
        raise CheckpointError(f"{path}: not a file of torch.save ({error})") from None
    except (ValueError, LookupError, TypeError, AttributeError, RuntimeError, ArithmeticError, EOFError) as error:
        reason = " ".join(f"{type(error).__name__}: {error}"[:MAX_TEXT_LENGTH].split())
        raise CheckpointError(f"{path}: cannot be read without executing its content ({reason})") from None
    except MemoryError:
        raise CheckpointError(f"{path}: larger than the free memory") from None


def select_tensors(value: Any) -> dict[str, Tensor]:
    """Return the tensors of a dictionary that a file holds, by name; none for another object."""
    items = value.items() if isinstance(value, dict) else ()
    return {name: tensor for name, tensor in items if isinstance(name, str) and isinstance(tensor, Tensor)}


def describe_keys(value: Any) -> str:
    """Return the first keys of a dictionary that a file holds, or the type of another object, for error messages."""
    if not isinstance(value, dict):
        return type(value).__name__
    return ", ".join(str(key)[:MAX_TEXT_LENGTH] for key in islice(value, MAX_KEYS)) or "no key"


def _read_archive(archive: zipfile.ZipFile, archive_bytes: int) -> Any:
    (pickle_path,) = (name for name in archive.namelist() if name.endswith("/data.pkl"))
    root = pickle_path.removesuffix("data.pkl")

    def read(name: str, max_bytes: int) -> bytes:
        entry = archive.getinfo(name)
        if entry.compress_type != zipfile.ZIP_STORED:
            raise ValueError(f"{name} is compressed, unlike the files of torch.save")
        if entry.file_size > max_bytes:
            raise ValueError(f"{name} is longer than {max_bytes} bytes")
        return archive.read(entry)

    def read_storage(storage: StorageId) -> bytes:
        if "/" in storage.key or ".." in storage.key:
            raise ValueError(f"storage {storage.key!r}")
        return read(f"{root}data/{storage.key}", storage.num_bytes)

    return _run_pickle(read(pickle_path, MAX_PICKLE_BYTES), read_storage, archive_bytes)


def _read_legacy(file: BinaryIO) -> Any:
    """Read four pickles (magic number, version, machine, object), the keys of the storages, and their numbers.

    The object is built twice: once to learn the types of the storages, which follow it, and once with their numbers.
    """
    magic = _run_pickle(file)
    if not isinstance(magic, int) or magic != LEGACY_MAGIC or _run_pickle(file) != LEGACY_VERSION:
        raise ValueError(f"magic number {magic if isinstance(magic, int) else type(magic).__name__}")
    if not _run_pickle(file)["little_endian"]:
        raise ValueError("it was written on a big-endian machine")
    start, file_bytes, storages = file.tell(), os.fstat(file.fileno()).st_size, dict[str, StorageId]()

    def note_storage(storage: StorageId) -> bytes:
        storages[storage.key] = storage
        return bytes(storage.num_bytes)

    _run_pickle(file, note_storage, file_bytes)
    numbers: dict[str, bytes] = {}
    for key in map(_check_key, _run_pickle(file)):
        count = int.from_bytes(file.read(8), "little", signed=True)
        if count * storages[key].dtype.itemsize != storages[key].num_bytes:
            raise ValueError(f"storage {key} has {count} numbers, not {storages[key].num_elements}")
        numbers[key] = file.read(storages[key].num_bytes)
    file.seek(start)
    return _run_pickle(file, lambda storage: numbers[storage.key], file_bytes)


def _no_storage(storage: StorageId) -> bytes:
    raise ValueError(f"storage {storage.key} outside of the object")


def _run_pickle(
    pickle: bytes | BinaryIO, read_storage: Callable[[StorageId], bytes] = _no_storage, max_bytes: int = 0
) -> Any:
    """Interpret a pickle up to its end.

    Args:
        pickle: The pickle, or a file at its beginning.
        read_storage: Function that returns the bytes of a storage; it is called once per storage.
        max_bytes: Number of bytes that all storages together have at most.
    """
    machine = _PickleMachine(read_storage, max_bytes)
    for count, (opcode, argument, _) in enumerate(pickletools.genops(pickle)):
        if count > MAX_OPCODES:
            raise ValueError(f"its pickle has more than {MAX_OPCODES} operations")
        if opcode.name == "STOP":
            break
        _execute(machine, opcode.name, argument)
    return machine.stack.pop()


def _execute(machine: _PickleMachine, name: str, argument: Any) -> None:
    if name in PUSH_OPCODES:
        if isinstance(argument, int) and abs(argument) > MAX_INTEGER:
            raise ValueError("an integer of more than 127 bits")
        machine.stack.append(argument if PUSH_OPCODES[name] is None else PUSH_OPCODES[name]())  # type: ignore[misc]
    elif name == "BINPERSID":
        machine.stack.append(_load_storage(machine, machine.stack.pop()))
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


def _load_storage(machine: _PickleMachine, persistent_id: tuple[Any, ...]) -> Tensor:
    """Return all numbers of a storage, flat; they are shared by all tensors of the storage."""
    kind, (_, type_name), key, _, num_elements = persistent_id[:5]
    if kind != "storage" or any(part is not None for part in persistent_id[5:]) or not isinstance(type_name, str):
        raise ValueError("an object that is no storage")
    if not isinstance(key, str) or not isinstance(num_elements, int) or num_elements < 0:
        raise ValueError("a storage without a key or a length")
    storage = StorageId(key, STORAGE_DTYPES[type_name], num_elements)
    if storage not in machine.storages:
        machine.free_bytes -= storage.num_bytes
        if machine.free_bytes < 0:
            raise ValueError("its storages are longer than the file")
        raw = machine.read_storage(storage)
        if len(raw) != storage.num_bytes:
            raise ValueError(f"storage {key} has {len(raw)} bytes, not {num_elements} numbers")
        numbers = torch.frombuffer(bytearray(raw), dtype=storage.dtype) if raw else torch.zeros(0, dtype=storage.dtype)
        machine.storages[storage] = numbers
    return machine.storages[storage]


def _call(function: Any, arguments: tuple[Any, ...]) -> Any:
    """Return the result of one of the three calls that create containers and tensors, else an `UnresolvedObject`."""
    if not isinstance(function, GlobalName):
        raise ValueError(f"a call of an object of type {type(function).__name__}")
    if function == ("collections", "OrderedDict"):
        if arguments:  # Python 3 adds the items later
            raise ValueError("an OrderedDict of other items")
        return {}
    if function == ("torch._utils", "_rebuild_tensor_v2"):
        storage, offset, size, stride = arguments[:4]
        if len(size) > MAX_DIMENSIONS or any(type(length) is not int for length in size):
            raise ValueError(f"a tensor of {len(size)} dimensions, or of lengths that are no integers")
        if math.prod(size) > len(storage):
            raise ValueError(f"a tensor of more than {len(storage)} numbers")
        return torch.as_strided(storage, size, stride, offset)
    if function == ("torch._utils", "_rebuild_parameter"):
        return arguments[0]
    return UnresolvedObject(function)


def _check_key(key: Any) -> Any:
    """Return the key of an entry; `ValueError` for a container, whose hash may take forever, or a large integer."""
    if not isinstance(key, KEY_TYPES):
        raise ValueError(f"a key of type {type(key).__name__}")
    if isinstance(key, int) and abs(key) > MAX_KEY_INTEGER:
        raise ValueError("a key of more than 61 bits")
    return key


def _set_pairs(machine: _PickleMachine, pairs: Iterable[tuple[Any, Any]]) -> None:
    if not isinstance(machine.stack[-1], dict):
        raise ValueError(f"entries of an object of type {type(machine.stack[-1]).__name__}")
    machine.stack[-1].update((_check_key(key), value) for key, value in pairs)


def _set_items(machine: _PickleMachine) -> None:
    flat = machine.pop_mark()
    _set_pairs(machine, zip(flat[::2], flat[1::2], strict=True))


def _set_item(machine: _PickleMachine) -> None:
    value, key = machine.stack.pop(), machine.stack.pop()
    _set_pairs(machine, [(key, value)])


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
