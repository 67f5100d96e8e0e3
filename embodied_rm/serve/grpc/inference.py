"""Clips in gRPC messages of the Open Inference Protocol."""

from typing import Any

from embodied_rm.client.wire import DATATYPE_NAMES
from embodied_rm.serve import open_inference
from embodied_rm.serve.grpc.messages import INFERENCE_CLASSES
from embodied_rm.serve.open_inference import BYTES_DATATYPE, UINT8_DATATYPE, InferInputTensor, Inputs
from embodied_rm.serve.request_errors import validation_error
from embodied_rm.serve.service import RewardService
from embodied_rm.serve.sessions import OUTPUT_DTYPES

CONTENT_FIELDS = {UINT8_DATATYPE: "uint_contents", BYTES_DATATYPE: "bytes_contents"}
"""Datatype -> field of the values that are not raw."""


async def infer(service: RewardService, request: Any, deadline: float) -> Any:
    """Score the clips of a request. Raises `RequestError`."""
    clips = open_inference.parse_clips(parse_inputs(request), service.limits)
    output_names = open_inference.parse_outputs([output.name for output in request.outputs])
    columns = await open_inference.score_clips(service, clips, deadline)
    tensor = INFERENCE_CLASSES["ModelInferResponse.InferOutputTensor"]
    response = INFERENCE_CLASSES["ModelInferResponse"](**service.model_info, id=request.id)
    for name in output_names:
        datatype = DATATYPE_NAMES[OUTPUT_DTYPES[name]]
        response.outputs.append(tensor(name=name, datatype=datatype, shape=columns[name].shape))
        response.raw_output_contents.append(columns[name].tobytes())
    return response


def parse_inputs(request: Any) -> Inputs:
    """Return each input with its raw bytes, if any."""
    raw_contents = [memoryview(content) for content in request.raw_input_contents]
    if raw_contents and len(raw_contents) != len(request.inputs):
        expected = f"{len(request.inputs)}, one per input"
        raise validation_error("raw_input_contents", f"{len(raw_contents)} entries", expected)
    inputs: Inputs = {}
    for index, tensor in enumerate(request.inputs):
        if tensor.name in inputs:
            raise validation_error("inputs", f"{tensor.name[:40]!r} twice", "each once")
        data = None if raw_contents else parse_contents(tensor)
        parsed = InferInputTensor(name=tensor.name, shape=list(tensor.shape), datatype=tensor.datatype, data=data)
        inputs[tensor.name] = parsed, raw_contents[index] if raw_contents else memoryview(b"")
    return inputs


def parse_contents(tensor: Any) -> list[Any]:
    """Return the values of a tensor that are not raw."""
    if tensor.datatype not in CONTENT_FIELDS:
        raise validation_error(f"{tensor.name[:40]}.datatype", repr(tensor.datatype[:20]), " or ".join(CONTENT_FIELDS))
    values = list(getattr(tensor.contents, CONTENT_FIELDS[tensor.datatype]))
    if tensor.datatype == UINT8_DATATYPE:
        return values
    try:
        return [value.decode() for value in values]
    except UnicodeDecodeError:
        raise validation_error(tensor.name[:40], "bytes", "text in UTF-8") from None
