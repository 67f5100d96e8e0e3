"""Memory that a client sends back: believed only as far as it has the shape of what this model remembers."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from embodied_rm.checkpoint_io import unpack_json
from embodied_rm.errors import UserError
from embodied_rm.models.subgoal_state import COUNT_FIELDS, SubgoalState
from embodied_rm.serve.request_errors import ErrorCode, RequestError

PLAN_KEY = "plan"


def validate_state(state: Mapping[str, Tensor], example_state: SubgoalState, num_rows: int) -> None:
    """Raises `RefusalError` unless `state` is that of a memory of `rows` episodes like `pattern`."""
    example_tensors = example_state.state_dict()
    model_tensors = {name.split(".", 1)[1]: tensor for name, tensor in example_tensors.items() if name.startswith("0.")}
    subgoal_indices = {name.split(".", 1)[0] for name in state if "." in name}
    if subgoal_indices != {str(index) for index in range(len(subgoal_indices))} or not subgoal_indices:
        raise state_error("it is of other wishes")
    expected = {name: example_tensors[name] for name in COUNT_FIELDS}
    expected |= {
        f"{subgoal_index}.{name}": tensor for subgoal_index in subgoal_indices for name, tensor in model_tensors.items()
    }
    if set(state) != {*expected, PLAN_KEY}:
        raise state_error("it holds other things")
    for name, tensor in expected.items():
        validate_tensor(name, state[name], tensor, num_rows)
    validate_plan(state, num_rows, len(subgoal_indices))


def validate_tensor(name: str, tensor: Tensor, expected: Tensor, num_rows: int) -> None:
    """A column of numbers, one row an episode."""
    shape = (num_rows, *expected.shape[1:])
    if tensor.dtype != expected.dtype or tensor.shape != shape:
        raise state_error(f"{name} is {tensor.dtype} {list(tensor.shape)}, not {expected.dtype} {list(shape)}")
    if tensor.is_floating_point() and not torch.isfinite(tensor).all():
        raise state_error(f"{name} holds what is no number")
    if not tensor.is_floating_point() and tensor.dtype != torch.bool and tensor.lt(0).any():
        raise state_error(f"{name} is below 0")


def validate_plan(state: Mapping[str, Tensor], num_rows: int, max_subgoals: int) -> None:
    """The sentences, and how far each row is in them."""
    try:
        plan = unpack_json(state[PLAN_KEY])
    except (UserError, ValueError, RecursionError, TypeError):
        raise state_error("its instructions cannot be read") from None
    is_list_of_lists = (
        isinstance(plan, list)
        and len(plan) == num_rows
        and all(isinstance(subgoals, list) and subgoals for subgoals in plan)
    )
    if not is_list_of_lists or not all(isinstance(text, str) for subgoals in plan for text in subgoals):
        raise state_error("its instructions are none")
    lengths = torch.tensor([len(subgoals) for subgoals in plan])
    if not torch.equal(lengths, state["wishes"]) or int(lengths.max()) != max_subgoals:
        raise state_error("its instructions are not those that it counts")
    if (state["done"] >= state["wishes"]).any():
        raise state_error("it has done more wishes than there are")


def state_error(reason: str) -> RequestError:
    """For a memory that cannot be taken up."""
    return RequestError(ErrorCode.VALIDATION_ERROR, f"state: not the memory of episodes of this model: {reason}")
