"""The messages of gRPC, put together from a table: what a compiler would generate, and can be read.

Source: kserve/open-inference-protocol, open_inference_grpc.proto; of ours are `Request` and `Answer`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from google.protobuf import descriptor_pool, message_factory
from google.protobuf.descriptor_pb2 import DescriptorProto, FieldDescriptorProto, FileDescriptorProto

INFERENCE, OURS = "inference", "embodied_rm"
MANY, MAP = "*", "map"
"""Before a type: repeated, and a map from texts to it."""
Fields = Mapping[str, tuple[int, str]]
"""Name -> number and type."""
PARAMETERS = "map InferParameter"
NAMED: Fields = {"name": (1, "string"), "version": (2, "string")}
TENSOR: Fields = {
    "name": (1, "string"),
    "datatype": (2, "string"),
    "shape": (3, "*int64"),
    "parameters": (4, PARAMETERS),
    "contents": (5, "InferTensorContents"),
}
MESSAGES: Mapping[str, Fields] = {
    "ServerLiveRequest": {},
    "ServerLiveResponse": {"live": (1, "bool")},
    "ServerReadyRequest": {},
    "ServerReadyResponse": {"ready": (1, "bool")},
    "ModelReadyRequest": NAMED,
    "ModelReadyResponse": {"ready": (1, "bool")},
    "ServerMetadataRequest": {},
    "ServerMetadataResponse": {**NAMED, "extensions": (3, "*string")},
    "ModelMetadataRequest": NAMED,
    "ModelMetadataResponse.TensorMetadata": {k: TENSOR[k] for k in ("name", "datatype", "shape")},
    "ModelMetadataResponse": {
        "name": (1, "string"),
        "versions": (2, "*string"),
        "platform": (3, "string"),
        "inputs": (4, "*ModelMetadataResponse.TensorMetadata"),
        "outputs": (5, "*ModelMetadataResponse.TensorMetadata"),
    },
    "ModelInferRequest.InferInputTensor": TENSOR,
    "ModelInferRequest.InferRequestedOutputTensor": {"name": (1, "string"), "parameters": (2, PARAMETERS)},
    "ModelInferRequest": {
        "model_name": (1, "string"),
        "model_version": (2, "string"),
        "id": (3, "string"),
        "parameters": (4, PARAMETERS),
        "inputs": (5, "*ModelInferRequest.InferInputTensor"),
        "outputs": (6, "*ModelInferRequest.InferRequestedOutputTensor"),
        "raw_input_contents": (7, "*bytes"),
    },
    "ModelInferResponse.InferOutputTensor": TENSOR,
    "ModelInferResponse": {
        "model_name": (1, "string"),
        "model_version": (2, "string"),
        "id": (3, "string"),
        "parameters": (4, PARAMETERS),
        "outputs": (5, "*ModelInferResponse.InferOutputTensor"),
        "raw_output_contents": (6, "*bytes"),
    },
    "InferParameter": {
        "bool_param": (1, "bool"),
        "int64_param": (2, "int64"),
        "string_param": (3, "string"),
        "double_param": (4, "double"),
        "uint64_param": (5, "uint64"),
    },
    "InferTensorContents": {
        "bool_contents": (1, "*bool"),
        "int_contents": (2, "*int32"),
        "int64_contents": (3, "*int64"),
        "uint_contents": (4, "*uint32"),
        "uint64_contents": (5, "*uint64"),
        "fp32_contents": (6, "*float"),
        "fp64_contents": (7, "*double"),
        "bytes_contents": (8, "*bytes"),
    },
}
SESSIONS: Mapping[str, Fields] = {
    name: {"header": (1, "bytes"), "body": (2, "bytes")} for name in ("Request", "Answer")
}
"""The JSON of the session API, and the bytes behind it."""
CHOICES = {"InferParameter": "parameter_choice"}
"""Messages of which one field is set -> what the choice is called."""


def classes(package: str, messages: Mapping[str, Fields]) -> dict[str, Any]:
    """Name -> message class."""
    file = FileDescriptorProto(name=f"{package}.proto", package=package, syntax="proto3")
    made: dict[str, DescriptorProto] = {}
    for name in sorted(messages, key=lambda name: name.count(".")):
        outer, _, inner = name.rpartition(".")
        message = made[outer].nested_type.add() if outer else file.message_type.add()
        made[name] = message
        message.name = inner
        if name in CHOICES:
            message.oneof_decl.add().name = CHOICES[name]
        for field, (number, kind) in messages[name].items():
            add_field(message, f".{package}.{name}", field, number, kind)
            if name in CHOICES:
                message.field[-1].oneof_index = 0
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    found = {name: pool.FindMessageTypeByName(f"{package}.{name}") for name in messages}
    return {name: message_factory.GetMessageClass(descriptor) for name, descriptor in found.items()}


def add_field(message: DescriptorProto, path: str, name: str, number: int, kind: str) -> None:
    """One field of a message; `path`: its full name."""
    field = message.field.add()
    field.name, field.number = name, number
    many = kind.startswith((MANY, MAP))
    field.label = FieldDescriptorProto.LABEL_REPEATED if many else FieldDescriptorProto.LABEL_OPTIONAL
    if kind.startswith(MAP):
        entry = message.nested_type.add()
        entry.name = f"{name.capitalize()}Entry"
        entry.options.map_entry = True
        add_field(entry, f"{path}.{entry.name}", "key", 1, "string")
        add_field(entry, f"{path}.{entry.name}", "value", 2, kind.split()[1])
        field.type, field.type_name = FieldDescriptorProto.TYPE_MESSAGE, f"{path}.{entry.name}"
        return
    kind = kind.removeprefix(MANY)
    if kind in MESSAGES:
        field.type, field.type_name = FieldDescriptorProto.TYPE_MESSAGE, f".{INFERENCE}.{kind}"
    else:
        field.type = FieldDescriptorProto.Type.Value(f"TYPE_{kind.upper()}")


INFER = classes(INFERENCE, MESSAGES)
REWARDS = classes(OURS, SESSIONS)
