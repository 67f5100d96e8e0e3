"""A good request of every kind that the reward service takes, for what changes them."""

from __future__ import annotations

import io
import json
from dataclasses import dataclass
from typing import Any

import numpy as np
from PIL import Image
from wire_client import LIFT, VIEWS

from embodied_rm.serve.grpc.messages import INFER, REWARDS

FILM = np.random.default_rng(0).integers(0, 256, (3, 2, 2, 8, 8, 3), np.uint8)
"""[T, N, V, H, W, 3]."""


@dataclass(frozen=True)
class Message:
    """A good request."""

    kind: str
    text: bytes
    blob: bytes


def messages(state: bytes) -> list[Message]:
    """One of every kind; `state`: the memory of two episodes."""
    whose: dict[str, Any] = {"run": "r", "env": [0, 1], "episode": [0, 0]}
    seen: dict[str, Any] = {"views": VIEWS, "frames": {"shape": [2, 2, 8, 8, 3]}}
    files = [encoded(frame, kind) for frame, kind in zip(FILM[0].reshape(4, 8, 8, 3), ["PNG", "JPEG"] * 2, strict=True)]
    shown: dict[str, Any] = {"views": VIEWS, "frames": {"shape": [2, 2], "lengths": [len(file) for file in files]}}
    restore = {**whose, "step": [1, 1], "row": [0, 1], "rows": 2, "state": len(state)}
    film = np.moveaxis(FILM, 0, 1)
    tensors: list[dict[str, Any]] = [
        {
            "name": "frames",
            "datatype": "UINT8",
            "shape": list(film.shape),
            "parameters": {"binary_data_size": film.size},
        },
        {"name": "instruction", "datatype": "BYTES", "shape": [2], "data": [LIFT, "open it"]},
        {"name": "views", "datatype": "BYTES", "shape": [2], "data": VIEWS},
    ]
    small = [{**tensors[0], "shape": [1, 1, 1, 1, 1, 3], "parameters": {}, "data": [1, 2, 3]}]
    small += [{**tensors[1], "shape": [1], "data": [LIFT]}, {**tensors[2], "shape": [1], "data": ["front"]}]
    pixels = FILM[0].tobytes()
    told: list[tuple[str, Any, bytes]] = [
        ("begin", {**whose, **seen, "instruction": [LIFT, "open; then close"]}, pixels),
        ("begin", {**whose, **shown, "instruction": [LIFT, "open it"], "state": True}, b"".join(files)),
        ("advance", {**whose, **seen, "step": [1, 1], "state": True}, pixels),
        ("advance", {**whose, **shown, "step": [1, 1]}, b"".join(files)),
        ("end", whose, b""),
        ("restore", restore, state),
        ("infer", {"id": "1", "inputs": tensors, "outputs": [{"name": "value"}]}, film.tobytes()),
        ("infer", {"inputs": small, "parameters": {"binary_data_output": True}}, b""),
    ]
    return [Message(kind, json.dumps(header).encode(), blob) for kind, header, blob in told]


def encoded(frame: np.ndarray, kind: str) -> bytes:
    """A picture file."""
    file = io.BytesIO()
    Image.fromarray(frame).save(file, kind)
    return file.getvalue()


def form() -> tuple[str, bytes]:
    """A form as Robometer's clients send it."""
    file = io.BytesIO()
    np.save(file, FILM[:, 0, 0])
    sample = {"sample_type": "progress", "trajectory": {"frames": {"__numpy_file__": "f"}, "task": LIFT}}
    parts = [("f", file.getvalue()), ("sample_0", json.dumps(sample).encode())]
    body = b"".join(
        b'--xyz\r\ncontent-disposition: form-data; name="' + name.encode() + b'"\r\n\r\n' + content + b"\r\n"
        for name, content in parts
    )
    return "multipart/form-data; boundary=xyz", body + b"--xyz--\r\n"


def protobufs(goods: list[Message]) -> list[tuple[Any, Any]]:
    """The same in messages of gRPC."""
    tensor = INFER["ModelInferRequest.InferInputTensor"]
    film = np.moveaxis(FILM, 0, 1)
    inputs = [tensor(name="frames", datatype="UINT8", shape=film.shape)]
    for name, texts in (("instruction", [LIFT, "open it"]), ("views", VIEWS)):
        inputs.append(tensor(name=name, datatype="BYTES", shape=[2]))
        inputs[-1].contents.bytes_contents.extend(text.encode() for text in texts)
    inputs[0].contents.uint_contents.extend(film.ravel().tolist())
    raw = [tensor(name=one.name, datatype=one.datatype, shape=one.shape) for one in inputs]
    contents = [
        film.tobytes(),
        *(b"".join(len(t).to_bytes(4, "little") + t.encode() for t in s) for s in ([LIFT, "x"], VIEWS)),
    ]
    infer_kind, begin = INFER["ModelInferRequest"], goods[0]
    return [
        (infer_kind, infer_kind(model_name="reward", inputs=inputs)),
        (infer_kind, infer_kind(model_name="reward", inputs=raw, raw_input_contents=contents)),
        (REWARDS["Request"], REWARDS["Request"](header=begin.text, body=begin.blob)),
    ]


def grpc_calls(goods: list[Message]) -> list[tuple[str, Any]]:
    """Path and message of each call."""
    paths = {"ModelInferRequest": "/inference.GRPCInferenceService/ModelInfer", "Request": "/embodied_rm.Rewards/Begin"}
    return [(paths[kind.DESCRIPTOR.name], message) for kind, message in protobufs(goods)]
