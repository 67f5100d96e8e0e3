"""Valid requests of every kind that the reward service accepts, as a basis for mutations."""

from __future__ import annotations

import io
import json
from dataclasses import dataclass
from typing import Any

import numpy as np
from PIL import Image
from wire_client import LIFT_INSTRUCTION, VIEW_NAMES

from embodied_rm.serve.grpc.messages import INFERENCE_CLASSES, SESSION_CLASSES

FRAMES = np.random.default_rng(0).integers(0, 256, (3, 2, 2, 8, 8, 3), np.uint8)
"""[T, N, V, H, W, 3]."""


@dataclass(frozen=True)
class RequestMessage:
    """A valid request."""

    kind: str
    header: bytes
    body: bytes


def make_messages(state: bytes) -> list[RequestMessage]:
    """Return one or two requests of every kind. `state`: serialized state of two episodes."""
    episode_ids: dict[str, Any] = {"client_id": "r", "env_ids": [0, 1], "episode_ids": [0, 0]}
    raw_frames: dict[str, Any] = {"views": VIEW_NAMES, "frames": {"shape": [2, 2, 8, 8, 3]}}
    files = [
        encode_image(frame, kind)
        for frame, kind in zip(FRAMES[0].reshape(4, 8, 8, 3), ["PNG", "JPEG"] * 2, strict=True)
    ]
    encoded_frames: dict[str, Any] = {
        "views": VIEW_NAMES,
        "frames": {"shape": [2, 2], "image_bytes": [len(file) for file in files]},
    }
    restore = {**episode_ids, "steps": [1, 1], "state_rows": [0, 1], "num_state_rows": 2, "state_bytes": len(state)}
    video = np.moveaxis(FRAMES, 0, 1)
    tensors: list[dict[str, Any]] = [
        {
            "name": "frames",
            "datatype": "UINT8",
            "shape": list(video.shape),
            "parameters": {"binary_data_size": video.size},
        },
        {"name": "instruction", "datatype": "BYTES", "shape": [2], "data": [LIFT_INSTRUCTION, "open it"]},
        {"name": "views", "datatype": "BYTES", "shape": [2], "data": VIEW_NAMES},
    ]
    json_tensors = [{**tensors[0], "shape": [1, 1, 1, 1, 1, 3], "parameters": {}, "data": [1, 2, 3]}]
    json_tensors += [
        {**tensors[1], "shape": [1], "data": [LIFT_INSTRUCTION]},
        {**tensors[2], "shape": [1], "data": ["front"]},
    ]
    pixels = FRAMES[0].tobytes()
    requests: list[tuple[str, Any, bytes]] = [
        ("reset", {**episode_ids, **raw_frames, "instructions": [LIFT_INSTRUCTION, "open; then close"]}, pixels),
        (
            "reset",
            {**episode_ids, **encoded_frames, "instructions": [LIFT_INSTRUCTION, "open it"], "return_state": True},
            b"".join(files),
        ),
        ("step", {**episode_ids, **raw_frames, "steps": [1, 1], "return_state": True}, pixels),
        ("step", {**episode_ids, **encoded_frames, "steps": [1, 1]}, b"".join(files)),
        ("end", episode_ids, b""),
        ("restore", restore, state),
        ("infer", {"id": "1", "inputs": tensors, "outputs": [{"name": "progress"}]}, video.tobytes()),
        ("infer", {"inputs": json_tensors, "parameters": {"binary_data_output": True}}, b""),
    ]
    return [RequestMessage(kind, json.dumps(header).encode(), body) for kind, header, body in requests]


def encode_image(frame: np.ndarray, image_format: str) -> bytes:
    """Encode an image."""
    file = io.BytesIO()
    Image.fromarray(frame).save(file, image_format)
    return file.getvalue()


def make_form() -> tuple[str, bytes]:
    """Return the content type and the body of a form, as Robometer's clients send it."""
    file = io.BytesIO()
    np.save(file, FRAMES[:, 0, 0])
    sample = {"sample_type": "progress", "trajectory": {"frames": {"__numpy_file__": "f"}, "task": LIFT_INSTRUCTION}}
    parts = [("f", file.getvalue()), ("sample_0", json.dumps(sample).encode())]
    body = b"".join(
        b'--xyz\r\ncontent-disposition: form-data; name="' + name.encode() + b'"\r\n\r\n' + content + b"\r\n"
        for name, content in parts
    )
    return "multipart/form-data; boundary=xyz", body + b"--xyz--\r\n"


def make_protobufs(valid_messages: list[RequestMessage]) -> list[tuple[Any, Any]]:
    """Return gRPC message types with valid messages."""
    tensor = INFERENCE_CLASSES["ModelInferRequest.InferInputTensor"]
    video = np.moveaxis(FRAMES, 0, 1)
    inputs = [tensor(name="frames", datatype="UINT8", shape=video.shape)]
    for name, texts in (("instruction", [LIFT_INSTRUCTION, "open it"]), ("views", VIEW_NAMES)):
        inputs.append(tensor(name=name, datatype="BYTES", shape=[2]))
        inputs[-1].contents.bytes_contents.extend(text.encode() for text in texts)
    inputs[0].contents.uint_contents.extend(video.ravel().tolist())
    raw = [
        tensor(name=tensor_input.name, datatype=tensor_input.datatype, shape=tensor_input.shape)
        for tensor_input in inputs
    ]
    contents = [
        video.tobytes(),
        *(
            b"".join(len(string).to_bytes(4, "little") + string.encode() for string in strings)
            for strings in ([LIFT_INSTRUCTION, "x"], VIEW_NAMES)
        ),
    ]
    infer_kind, reset_message = INFERENCE_CLASSES["ModelInferRequest"], valid_messages[0]
    return [
        (infer_kind, infer_kind(model_name="reward", inputs=inputs)),
        (infer_kind, infer_kind(model_name="reward", inputs=raw, raw_input_contents=contents)),
        (
            SESSION_CLASSES["SessionRequest"],
            SESSION_CLASSES["SessionRequest"](header=reset_message.header, body=reset_message.body),
        ),
    ]


def grpc_calls(valid_messages: list[RequestMessage]) -> list[tuple[str, Any]]:
    """Return the path and the message of each gRPC call."""
    paths = {
        "ModelInferRequest": "/inference.GRPCInferenceService/ModelInfer",
        "SessionRequest": "/embodied_rm.RewardService/Reset",
    }
    return [(paths[kind.DESCRIPTOR.name], message) for kind, message in make_protobufs(valid_messages)]
