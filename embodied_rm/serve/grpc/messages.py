"""Protobuf messages built at import from tables, instead of generated code.

Source: kserve/open-inference-protocol, open_inference_grpc.proto. `SessionRequest` and `SessionResponse` are our own.
"""

from collections.abc import Mapping
from typing import Any

from google.protobuf import descriptor_pool, message_factory
from google.protobuf.descriptor_pb2 import DescriptorProto, FieldDescriptorProto, FileDescriptorProto

INFERENCE_PACKAGE, REWARD_PACKAGE = "inference", "embodied_rm"
PARAMETERS = "map<string, InferParameter> parameters"
NAME_AND_VERSION = "string name; string version"
TENSOR_METADATA = "string name; string datatype; repeated int64 shape"
TENSOR = f"{TENSOR_METADATA}; {PARAMETERS}; InferTensorContents contents"
INFERENCE_MESSAGES = {
    "ServerLiveRequest": "",
    "ServerLiveResponse": "bool live",
    "ServerReadyRequest": "",
    "ServerReadyResponse": "bool ready",
    "ModelReadyRequest": NAME_AND_VERSION,
    "ModelReadyResponse": "bool ready",
    "ServerMetadataRequest": "",
    "ServerMetadataResponse": f"{NAME_AND_VERSION}; repeated string extensions",
    "ModelMetadataRequest": NAME_AND_VERSION,
    "ModelMetadataResponse.TensorMetadata": TENSOR_METADATA,
    "ModelMetadataResponse": "string name; repeated string versions; string platform; repeated "
    "ModelMetadataResponse.TensorMetadata inputs; repeated ModelMetadataResponse.TensorMetadata outputs",
    "ModelInferRequest.InferInputTensor": TENSOR,
    "ModelInferRequest.InferRequestedOutputTensor": f"string name; {PARAMETERS}",
    "ModelInferRequest": f"string model_name; string model_version; string id; {PARAMETERS}; repeated "
    "ModelInferRequest.InferInputTensor inputs; repeated ModelInferRequest.InferRequestedOutputTensor outputs; "
    "repeated bytes raw_input_contents",
    "ModelInferResponse.InferOutputTensor": TENSOR,
    "ModelInferResponse": f"string model_name; string model_version; string id; {PARAMETERS}; repeated "
    "ModelInferResponse.InferOutputTensor outputs; repeated bytes raw_output_contents",
    "InferParameter": "bool bool_param; int64 int64_param; string string_param; double double_param; "
    "uint64 uint64_param",
    "InferTensorContents": "repeated bool bool_contents; repeated int32 int_contents; repeated int64 int64_contents; "
    "repeated uint32 uint_contents; repeated uint64 uint64_contents; repeated float fp32_contents; "
    "repeated double fp64_contents; repeated bytes bytes_contents",
}
"""Message -> its fields, numbered in order from 1."""
SESSION_MESSAGES = dict.fromkeys(("SessionRequest", "SessionResponse"), "bytes header; bytes body")
"""JSON of the session API, and the bytes that follow it."""
ONEOF_NAMES = {"InferParameter": "parameter_choice"}  # message in which one field is set -> name of the oneof


def build_message_classes(package: str, messages: Mapping[str, str]) -> dict[str, Any]:
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
        for number, field in enumerate(filter(None, messages[name].split("; ")), 1):
            add_field(message, f".{package}.{name}", number, field)
            if name in ONEOF_NAMES:
                message.field[-1].oneof_index = 0
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return {name: message_factory.GetMessageClass(pool.FindMessageTypeByName(f"{package}.{name}")) for name in messages}


def add_field(message: DescriptorProto, full_name: str, number: int, declaration: str) -> None:
    """Add a field, declared in Protobuf's syntax, to the message of that qualified name."""
    *labels, field_type, name = declaration.split()
    label = FieldDescriptorProto.LABEL_REPEATED if labels else FieldDescriptorProto.LABEL_OPTIONAL
    field = message.field.add(name=name, number=number, label=label)
    if labels == ["map<string,"]:
        entry = message.nested_type.add(name=f"{name.capitalize()}Entry")
        entry.options.map_entry = True
        field.type, field.type_name = FieldDescriptorProto.TYPE_MESSAGE, f"{full_name}.{entry.name}"
        add_field(entry, field.type_name, 1, "string key")
        add_field(entry, field.type_name, 2, f"{field_type.removesuffix('>')} value")
    elif field_type in INFERENCE_MESSAGES:
        field.type, field.type_name = FieldDescriptorProto.TYPE_MESSAGE, f".{INFERENCE_PACKAGE}.{field_type}"
    else:
        field.type = FieldDescriptorProto.Type.Value(f"TYPE_{field_type.upper()}")


INFERENCE_CLASSES = build_message_classes(INFERENCE_PACKAGE, INFERENCE_MESSAGES)
SESSION_CLASSES = build_message_classes(REWARD_PACKAGE, SESSION_MESSAGES)
