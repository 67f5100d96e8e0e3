"""Random mutations of valid requests."""

from __future__ import annotations

import json
import random
from copy import deepcopy
from typing import Any

from good_requests import RequestMessage

ODD_VALUES: list[Any] = [
    0,
    -1,
    1,
    2,
    255,
    256,
    2**31,
    2**32,
    2**53,
    2**63,
    2**64,
    10**400,
    0.5,
    -0.0,
    1e308,
    True,
    None,
    "",
    "0",
    [],
    {},
]
ODD_VALUES += ["\u0000", "../", "x" * 5000, [[]], [None], {"a": {}}, "\U0001f916", "a; then b", "; then ", "NaN"]


class RequestMutator:
    """Mutates bytes, JSON and messages."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)

    def mutate_bytes(self, content: bytes) -> bytes:
        """Flip, delete, duplicate, insert or overwrite bytes."""
        rng, data = self.rng, bytearray(content)
        for _ in range(rng.choice([1, 1, 1, 2, 4, 16])):
            position = rng.randrange(len(data) + 1)
            match rng.randrange(6):
                case 0 if data:
                    data[min(position, len(data) - 1)] ^= 1 << rng.randrange(8)
                case 1:
                    del data[position:]
                case 2:
                    data[position:position] = rng.randbytes(rng.choice([1, 2, 8, 64]))
                case 3:
                    del data[position : position + rng.choice([1, 2, 8, 64])]
                case 4:
                    data[position:position] = data[position : position + 64]
                case _:
                    data[position : position + 8] = rng.choice(
                        [b"\xff" * 8, bytes(8), b"\x80\x04\x95\x00", b"\r\n\r\n", b'"}],{']
                    )
        return bytes(data)

    def mutate_json(self, text: bytes) -> bytes:
        """Change a value or a name in the JSON, or add or remove one."""
        value = json.loads(text)
        for _ in range(self.rng.choice([1, 1, 2])):
            self._mutate_value(value)
        return json.dumps(value).encode()

    def _mutate_value(self, value: Any) -> None:
        while True:
            keys = list(value) if isinstance(value, dict) else list(range(len(value)))
            if not keys:
                value.append(0) if isinstance(value, list) else value.update(a=1)
                return
            key = self.rng.choice(keys)
            if isinstance(value[key], dict | list) and self.rng.random() < 0.7:
                value = value[key]
                continue
            match self.rng.randrange(4):
                case 0:
                    del value[key]
                case 1 if isinstance(value, list):
                    value.insert(key, deepcopy(self.rng.choice(ODD_VALUES)))
                case 1:
                    value[self.rng.choice(["path", "url", "__class__", "x"])] = deepcopy(value[key])
                case 2 if isinstance(value[key], int):
                    value[key] += self.rng.choice([-1, 1, 2, 1 << 16])
                case _:
                    value[key] = deepcopy(self.rng.choice(ODD_VALUES))
            return

    def mutate_message(self, valid: RequestMessage) -> RequestMessage:
        """Mutate the header or the body of a message."""
        header, body = valid.header, valid.body
        match self.rng.randrange(4):
            case 0:
                header = self.mutate_bytes(header)
            case 1:
                body = self.mutate_bytes(body)
            case _:
                header = self.mutate_json(header)
        return RequestMessage(valid.kind, header, body)
