"""Protobuf messages built at import from tables, instead of generated code.

Source: kserve/open-inference-protocol, open_inference_grpc.proto. `SessionRequest` and `SessionResponse` are our own.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from google.protobuf import descriptor_pool, message_factory
from google.protobuf.descriptor_pb2 import DescriptorProto, FieldDescriptorProto, FileDescriptorProto

INFERENCE_PACKAGE, REWARD_PACKAGE = "inference", "embodied_rm"
REPEATED_PREFIX, MAP_PREFIX = "*", "map"
"""Type prefixes: repeated field, and map from strings to the type."""
MessageFields = Mapping[str, tuple[int, str]]
"""Field name -> number and type."""
PARAMETERS_TYPE = "map InferParameter"
NAME_AND_VERSION_FIELDS: MessageFields = {"name": (1, "string"), "version": (2, "string")}
TENSOR_FIELDS: MessageFields = {
    "name": (1, "string"),
    "datatype": (2, "string"),
    "shape": (3, "*int64"),
    "parameters": (4, PARAMETERS_TYPE),
    "contents": (5, "InferTensorContents"),
}
INFERENCE_MESSAGES: Mapping[str, MessageFields] = {
    "ServerLiveRequest": {},
    "ServerLiveResponse": {"live": (1, "bool")},
    "ServerReadyRequest": {},
    "ServerReadyResponse": {"ready": (1, "bool")},
    "ModelReadyRequest": NAME_AND_VERSION_FIELDS,
    "ModelReadyResponse": {"ready": (1, "bool")},
    "ServerMetadataRequest": {},
    "ServerMetadataResponse": {**NAME_AND_VERSION_FIELDS, "extensions": (3, "*string")},
    "ModelMetadataRequest": NAME_AND_VERSION_FIELDS,
    "ModelMetadataResponse.TensorMetadata": {k: TENSOR_FIELDS[k] for k in ("name", "datatype", "shape")},
    "ModelMetadataResponse": {
        "name": (1, "string"),
        "versions": (2, "*string"),
        "platform": (3, "string"),
        "inputs": (4, "*ModelMetadataResponse.TensorMetadata"),
        "outputs": (5, "*ModelMetadataResponse.TensorMetadata"),
    },
    "ModelInferRequest.InferInputTensor": TENSOR_FIELDS,
    "ModelInferRequest.InferRequestedOutputTensor": {"name": (1, "string"), "parameters": (2, PARAMETERS_TYPE)},
    "ModelInferRequest": {
        "model_name": (1, "string"),
        "model_version": (2, "string"),
        "id": (3, "string"),
        "parameters": (4, PARAMETERS_TYPE),
        "inputs": (5, "*ModelInferRequest.InferInputTensor"),
        "outputs": (6, "*ModelInferRequest.InferRequestedOutputTensor"),
        "raw_input_contents": (7, "*bytes"),
    },
    "ModelInferResponse.InferOutputTensor": TENSOR_FIELDS,
    "ModelInferResponse": {
        "model_name": (1, "string"),
        "model_version": (2, "string"),
        "id": (3, "string"),
        "parameters": (4, PARAMETERS_TYPE),
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
SESSION_MESSAGES: Mapping[str, MessageFields] = {
    name: {"header": (1, "bytes"), "body": (2, "bytes")} for name in ("SessionRequest", "SessionResponse")
}
"""JSON of the session API, and the bytes that follow it."""
ONEOF_NAMES = {"InferParameter": "parameter_choice"}
"""Message in which one field is set -> name of the oneof."""


def build_message_classes(package: str, messages: Mapping[str, MessageFields]) -> dict[str, Any]:
    """Return message name -> class."""
    file = FileDescriptorProto(name=f"{package}.proto", package=package, syntax="proto3")
    descriptors: dict[str, DescriptorProto] = {}
    for name in sorted(messages, key=lambda name: name.count(".")):
        outer, _, inner = name.rpartition(".")
        message = descriptors[outer].nested_type.add() if outer else file.message_type.add()
        descriptors[name] = message
        message.name = inner
        if name in ONEOF_NAMES:
            message.oneof_decl.add().name = ONEOF_NAMES[name]
        for field, (number, field_type) in messages[name].items():
            add_field(message, f".{package}.{name}", field, number, field_type)
            if name in ONEOF_NAMES:
                message.field[-1].oneof_index = 0
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    message_descriptors = {name: pool.FindMessageTypeByName(f"{package}.{name}") for name in messages}
    return {name: message_factory.GetMessageClass(descriptor) for name, descriptor in message_descriptors.items()}


def add_field(message: DescriptorProto, full_name: str, name: str, number: int, field_type: str) -> None:
    """Add a field to a message. `full_name`: qualified name of the message."""
    field = message.field.add()
    field.name, field.number = name, number
    is_repeated = field_type.startswith((REPEATED_PREFIX, MAP_PREFIX))
    field.label = FieldDescriptorProto.LABEL_REPEATED if is_repeated else FieldDescriptorProto.LABEL_OPTIONAL
    if field_type.startswith(MAP_PREFIX):
        entry = message.nested_type.add()
        entry.name = f"{name.capitalize()}Entry"
        entry.options.map_entry = True
        add_field(entry, f"{full_name}.{entry.name}", "key", 1, "string")
        add_field(entry, f"{full_name}.{entry.name}", "value", 2, field_type.split()[1])
        field.type, field.type_name = FieldDescriptorProto.TYPE_MESSAGE, f"{full_name}.{entry.name}"
        return
    field_type = field_type.removeprefix(REPEATED_PREFIX)
    if field_type in INFERENCE_MESSAGES:
        field.type, field.type_name = FieldDescriptorProto.TYPE_MESSAGE, f".{INFERENCE_PACKAGE}.{field_type}"
    else:
        field.type = FieldDescriptorProto.Type.Value(f"TYPE_{field_type.upper()}")


INFERENCE_CLASSES = build_message_classes(INFERENCE_PACKAGE, INFERENCE_MESSAGES)
SESSION_CLASSES = build_message_classes(REWARD_PACKAGE, SESSION_MESSAGES)
