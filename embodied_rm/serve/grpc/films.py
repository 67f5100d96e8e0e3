"""Films in gRPC's messages."""

from __future__ import annotations

from typing import Any

from embodied_rm.serve.client.wire import NAMES
from embodied_rm.serve.films import judged
from embodied_rm.serve.grpc.messages import INFER
from embodied_rm.serve.open_inference import BYTES, PIXELS, Inputs, Tensor, Wanted, films_of, outputs_of
from embodied_rm.serve.protocol import unfit
from embodied_rm.serve.service import RewardService
from embodied_rm.serve.sessions import KINDS

CONTENTS = {PIXELS: "uint_contents", BYTES: "bytes_contents"}
"""Where a tensor's numbers are, if they are not raw."""


async def inferred(service: RewardService, request: Any, expires: float) -> Any:
    """Judge the films of a request. Raises `RefusalError`."""
    films = films_of(inputs_of(request), service.limits)
    wanted = outputs_of([Wanted(name=output.name) for output in request.outputs])
    columns = await judged(service, films, expires)
    tensor = INFER["ModelInferResponse.InferOutputTensor"]
    return INFER["ModelInferResponse"](
        model_name=service.about.name,
        model_version=service.about.version,
        id=request.id,
        outputs=[tensor(name=k, datatype=NAMES[KINDS[k]], shape=columns[k].shape) for k in wanted],
        raw_output_contents=[columns[k].tobytes() for k in wanted],
    )


def inputs_of(request: Any) -> Inputs:
    """Each input, and its bytes where they are raw."""
    raw = [memoryview(content) for content in request.raw_input_contents]
    if raw and len(raw) != len(request.inputs):
        raise unfit("raw_input_contents", f"{len(raw)} of them", f"{len(request.inputs)}, one for each input")
    inputs: Inputs = {}
    for number, tensor in enumerate(request.inputs):
        if tensor.name in inputs:
            raise unfit("inputs", f"{tensor.name[:40]!r} twice", "each once")
        data = None if raw else contents_of(tensor)
        read = Tensor(name=tensor.name, shape=list(tensor.shape), datatype=tensor.datatype, data=data)
        inputs[tensor.name] = read, raw[number] if raw else memoryview(b"")
    return inputs


def contents_of(tensor: Any) -> list[Any]:
    """The numbers or texts that are not raw."""
    if tensor.datatype not in CONTENTS:
        raise unfit(f"{tensor.name[:40]}.datatype", repr(tensor.datatype[:20]), " or ".join(CONTENTS))
    values = list(getattr(tensor.contents, CONTENTS[tensor.datatype]))
    if tensor.datatype == PIXELS:
        return values
    try:
        return [value.decode() for value in values]
    except UnicodeDecodeError:
        raise unfit(tensor.name[:40], "bytes", "text in UTF-8") from None
