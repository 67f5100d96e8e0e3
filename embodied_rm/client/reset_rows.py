"""Which rows of a vector environment a reset resets, under the names that libraries use."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from inspect import Parameter, signature
from typing import Any

import numpy as np

from .arrays import row_mask, rows_of, to_numpy
from .wire import Array

NAMED_KINDS = (Parameter.POSITIONAL_ONLY, Parameter.POSITIONAL_OR_KEYWORD)
ROW_NAME_PATTERN = re.compile("(env|envs|row|rows|world|worlds|reset)_?(id|ids|idx|index|indices|mask)")
"""Names of rows: `env_ids` of Isaac Lab and mjlab, `env_idx` of ManiSkill, `envs_idx` of Genesis, `reset_ids` of
EmbodiChain, `reset_mask` of Gymnasium."""
LIST_NAMES = ("ids", "idx", "indices", "mask", "rows")
"""Names of rows if the value is a list or an array; one number is anything."""
MASK_SUFFIX = "mask"
PARTIAL_RESETS = ("reset_idx", "_reset_idx", "reset_envs", "reset_done")
"""Methods of torch environments that reset some rows and return no observation."""


def read_reset_mask(num_envs: int, arguments: Mapping[str, Any]) -> Array:
    """Return which rows a reset resets, bool [N]: those that its arguments or options name, else all.

    Raises:
        ValueError: A mask has another shape, or a flag per row has a name that stands for no rows.
    """
    mask = np.ones(num_envs, bool)
    for name, value in arguments.items():
        if names_rows(name, value):
            is_mask = name.endswith(MASK_SUFFIX)
            mask &= rows_of(value, num_envs, name).astype(bool) if is_mask else row_mask(value, num_envs)
        elif num_envs > 1 and is_flag_per_row(value, num_envs):
            raise ValueError(f"reset has {name!r}, a flag per environment: name the rows to reset reset_mask")
    return mask


def names_rows(name: str, value: Any) -> bool:
    """Return whether an argument of a reset names rows."""
    if value is None or isinstance(value, (str, bytes, Mapping)):
        return False
    return bool(ROW_NAME_PATTERN.fullmatch(name)) or (name in LIST_NAMES and hasattr(value, "__len__"))


def is_flag_per_row(value: Any, num_envs: int) -> bool:
    """Return whether a value is bool [N]."""
    if isinstance(value, (list, tuple)):
        return len(value) == num_envs and all(isinstance(entry, (bool, np.bool_)) for entry in value)
    return tuple(getattr(value, "shape", ())) == (num_envs,) and to_numpy(value).dtype == np.bool_


def bind_arguments(reset: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]) -> dict[str, Any]:
    """Return name -> value of the arguments of a reset.

    Raises:
        ValueError: A positional argument after the seed has no name.
    """
    parameters = [parameter for parameter in signature(reset).parameters.values() if parameter.kind in NAMED_KINDS]
    if len(args) > max(len(parameters), 1):
        raise ValueError(f"pass the arguments of reset by name: {len(args)} were passed by position")
    return {**{parameter.name: value for parameter, value in zip(parameters, args)}, **kwargs}


def split_reset_result(result: Any) -> tuple[Any, Any]:
    """Return the observation and infos that a reset returned; `ValueError` unless these are its two values."""
    if not isinstance(result, (tuple, list)) or len(result) != 2:
        raise ValueError(
            f"reset must return an observation and infos, and it returned {type(result).__name__}: wrap the "
            "environment so that it returns both"
        )
    return result[0], result[1]


def check_no_partial_reset(name: str) -> None:
    """Raise `AttributeError` for a method that resets rows without the wrapper, which would open no episode."""
    if name in PARTIAL_RESETS:
        raise AttributeError(
            f"{name} would open no episode with the model: call reset(env_ids=...) of the wrapped environment"
        )
