"""Memory that a client sends back: believed only as far as it has the shape of what this model remembers."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from embodied_rm.checkpoint_io import unpacked
from embodied_rm.errors import UserError
from embodied_rm.models.plan_memory import COUNTS, PlanMemory
from embodied_rm.serve.refusal import RefusalError, Why

PLAN = "plan"


def refuse_other(state: Mapping[str, Tensor], pattern: PlanMemory, rows: int) -> None:
    """Raises `RefusalError` unless `state` is that of a memory of `rows` episodes like `pattern`."""
    known = pattern.state()
    inner = {name.split(".", 1)[1]: tensor for name, tensor in known.items() if name.startswith("0.")}
    wishes = {name.split(".", 1)[0] for name in state if "." in name}
    if wishes != {str(number) for number in range(len(wishes))} or not wishes:
        raise wrong("it is of other wishes")
    expected = {name: known[name] for name in COUNTS}
    expected |= {f"{wish}.{name}": tensor for wish in wishes for name, tensor in inner.items()}
    if set(state) != {*expected, PLAN}:
        raise wrong("it holds other things")
    for name, tensor in expected.items():
        refuse_tensor(name, state[name], tensor, rows)
    refuse_plan(state, rows, len(wishes))


def refuse_tensor(name: str, tensor: Tensor, like: Tensor, rows: int) -> None:
    """A column of numbers, one row an episode."""
    shape = (rows, *like.shape[1:])
    if tensor.dtype != like.dtype or tensor.shape != shape:
        raise wrong(f"{name} is {tensor.dtype} {list(tensor.shape)}, not {like.dtype} {list(shape)}")
    if tensor.is_floating_point() and not torch.isfinite(tensor).all():
        raise wrong(f"{name} holds what is no number")
    if not tensor.is_floating_point() and tensor.dtype != torch.bool and tensor.lt(0).any():
        raise wrong(f"{name} is below 0")


def refuse_plan(state: Mapping[str, Tensor], rows: int, most: int) -> None:
    """The sentences, and how far each row is in them."""
    try:
        plan = unpacked(state[PLAN])
    except (UserError, ValueError, RecursionError, TypeError):
        raise wrong("its instructions cannot be read") from None
    lists = isinstance(plan, list) and len(plan) == rows and all(isinstance(one, list) and one for one in plan)
    if not lists or not all(isinstance(text, str) for one in plan for text in one):
        raise wrong("its instructions are none")
    lengths = torch.tensor([len(one) for one in plan])
    if not torch.equal(lengths, state["wishes"]) or int(lengths.max()) != most:
        raise wrong("its instructions are not those that it counts")
    if (state["done"] >= state["wishes"]).any():
        raise wrong("it has done more wishes than there are")


def wrong(reason: str) -> RefusalError:
    """For a memory that cannot be taken up."""
    return RefusalError(Why.DOES_NOT_FIT, f"state: not the memory of episodes of this model: {reason}")
