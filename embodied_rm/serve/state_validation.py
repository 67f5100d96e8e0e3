"""Validation of states that clients send back: names, shapes and values must match those of this model."""

from collections.abc import Mapping
from typing import Annotated

import msgspec
import torch
from torch import Tensor

from embodied_rm.checkpoint_io import unpack_json
from embodied_rm.errors import UserError
from embodied_rm.models.subgoal_state import COUNT_FIELDS, MAX_SUBGOALS, SubgoalState
from embodied_rm.serve.protocol import validate_instructions
from embodied_rm.serve.request_errors import ErrorCode, RequestError
from embodied_rm.serve.service_config import ServeLimits
from embodied_rm.types import SUBGOAL_SEPARATOR

INSTRUCTIONS_KEY = "subgoals"
MAX_JSON_BYTES_PER_CHAR, MAX_JSON_BYTES_PER_ROW = 12, 16  # two escape sequences, and the brackets of a row
SubgoalLists = list[Annotated[list[str], msgspec.Meta(min_length=1)]]


def validate_state(
    state: Mapping[str, Tensor], example_state: SubgoalState, num_rows: int, limits: ServeLimits
) -> None:
    """Raise `RequestError` unless `state` holds `num_rows` episodes, structured like `example_state`."""
    example_tensors = example_state.state_dict()
    model_tensors = {name.split(".", 1)[1]: tensor for name, tensor in example_tensors.items() if name.startswith("0.")}
    subgoal_indices = {name.split(".", 1)[0] for name in state if "." in name}
    if subgoal_indices != {str(index) for index in range(len(subgoal_indices))} or not subgoal_indices:
        raise state_error("its subgoals are not numbered from 0")
    if len(subgoal_indices) > MAX_SUBGOALS:
        raise state_error(f"it has {len(subgoal_indices)} subgoals, at most {MAX_SUBGOALS} are scored")
    expected = {name: example_tensors[name] for name in COUNT_FIELDS}
    expected |= {f"{index}.{name}": tensor for index in subgoal_indices for name, tensor in model_tensors.items()}
    if set(state) != {*expected, INSTRUCTIONS_KEY}:
        raise state_error("it has other entries")
    for name, tensor in expected.items():
        validate_tensor(name, state[name], tensor, num_rows)
    validate_subgoals(state, num_rows, len(subgoal_indices), limits)


def validate_tensor(name: str, tensor: Tensor, expected: Tensor, num_rows: int) -> None:
    """Check dtype, shape [num_rows, ...] and values of one tensor."""
    shape = (num_rows, *expected.shape[1:])
    if tensor.dtype != expected.dtype or tensor.shape != shape:
        raise state_error(f"{name} is {tensor.dtype} {list(tensor.shape)}, not {expected.dtype} {list(shape)}")
    if tensor.is_floating_point() and not torch.isfinite(tensor).all():
        raise state_error(f"{name} has non-finite values")
    if not tensor.is_floating_point() and tensor.dtype != torch.bool and tensor.lt(0).any():
        raise state_error(f"{name} has negative values")


def validate_subgoals(state: Mapping[str, Tensor], num_rows: int, max_subgoals: int, limits: ServeLimits) -> None:
    """Check the subgoal instructions and the number of those done, per row."""
    max_bytes = num_rows * (MAX_JSON_BYTES_PER_CHAR * limits.max_instruction_chars + MAX_JSON_BYTES_PER_ROW)
    if state[INSTRUCTIONS_KEY].nbytes > max_bytes:
        raise state_error(f"its instructions have {state[INSTRUCTIONS_KEY].nbytes} bytes, more than {max_bytes}")
    try:
        instructions = msgspec.convert(unpack_json(state[INSTRUCTIONS_KEY]), SubgoalLists)
    except msgspec.ValidationError:
        raise state_error("its instructions are not lists of strings") from None
    except (UserError, ValueError, RecursionError, TypeError):
        raise state_error("its instructions cannot be read") from None
    validate_instructions([SUBGOAL_SEPARATOR.join(subgoals) for subgoals in instructions], num_rows, limits)
    lengths = torch.tensor([len(subgoals) for subgoals in instructions])
    if not torch.equal(lengths, state["num_subgoals"]) or int(lengths.max()) != max_subgoals:
        raise state_error("its instructions do not match num_subgoals")
    if (state["num_done"] >= state["num_subgoals"]).any():
        raise state_error("num_done is not below num_subgoals")


def state_error(reason: str) -> RequestError:
    """Return the error for a state that cannot be restored."""
    return RequestError(ErrorCode.VALIDATION_ERROR, f"state: not a state of this model: {reason}")
