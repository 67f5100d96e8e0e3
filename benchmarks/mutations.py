"""Random changes to good requests."""

from __future__ import annotations

import json
import random
from copy import deepcopy
from typing import Any

from good_requests import Message

ODD: list[Any] = [
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
ODD += ["\u0000", "../", "x" * 5000, [[]], [None], {"a": {}}, "\U0001f916", "a; then b", "; then ", "NaN"]


class Mutations:
    """What is done to good messages."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)

    def flipped(self, content: bytes) -> bytes:
        """Some bytes flipped, cut, doubled, moved, or put in."""
        chosen, data = self.random, bytearray(content)
        for _ in range(chosen.choice([1, 1, 1, 2, 4, 16])):
            at = chosen.randrange(len(data) + 1)
            match chosen.randrange(6):
                case 0 if data:
                    data[min(at, len(data) - 1)] ^= 1 << chosen.randrange(8)
                case 1:
                    del data[at:]
                case 2:
                    data[at:at] = chosen.randbytes(chosen.choice([1, 2, 8, 64]))
                case 3:
                    del data[at : at + chosen.choice([1, 2, 8, 64])]
                case 4:
                    data[at:at] = data[at : at + 64]
                case _:
                    data[at : at + 8] = chosen.choice(
                        [b"\xff" * 8, bytes(8), b"\x80\x04\x95\x00", b"\r\n\r\n", b'"}],{']
                    )
        return bytes(data)

    def json(self, text: bytes) -> bytes:
        """Somewhere in it another value, another name, or one more or less."""
        value = json.loads(text)
        for _ in range(self.random.choice([1, 1, 2])):
            self._change(value)
        return json.dumps(value).encode()

    def _change(self, value: Any) -> None:
        while True:
            keys = list(value) if isinstance(value, dict) else list(range(len(value)))
            if not keys:
                value.append(0) if isinstance(value, list) else value.update(a=1)
                return
            key = self.random.choice(keys)
            if isinstance(value[key], dict | list) and self.random.random() < 0.7:
                value = value[key]
                continue
            match self.random.randrange(4):
                case 0:
                    del value[key]
                case 1 if isinstance(value, list):
                    value.insert(key, deepcopy(self.random.choice(ODD)))
                case 1:
                    value[self.random.choice(["path", "url", "__class__", "x"])] = deepcopy(value[key])
                case 2 if isinstance(value[key], int):
                    value[key] += self.random.choice([-1, 1, 2, 1 << 16])
                case _:
                    value[key] = deepcopy(self.random.choice(ODD))
            return

    def message(self, good: Message) -> Message:
        """A good message, changed."""
        text, blob = good.text, good.blob
        match self.random.randrange(4):
            case 0:
                text = self.flipped(text)
            case 1:
                blob = self.flipped(blob)
            case _:
                text = self.json(text)
        return Message(good.kind, text, blob)
