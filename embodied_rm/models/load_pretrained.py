"""Load models of `transformers` and weights from folders; each failure is a `CheckpointError`."""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from huggingface_hub.errors import StrictDataclassError
from safetensors import SafetensorError, safe_open
from torch import Tensor

from embodied_rm.errors import CheckpointError

LOAD_ERRORS = (
    OSError, RuntimeError, ValueError, KeyError, TypeError, AttributeError, ZeroDivisionError, ImportError,
    SafetensorError, StrictDataclassError,
)  # fmt: skip
"""Exceptions of `transformers` for invalid descriptions and weights: it has no exception classes of its own."""


@contextmanager
def checkpoint_errors(message: str) -> Iterator[None]:
    """Raise `CheckpointError` with a message and the reason where the block raises one of `LOAD_ERRORS`."""
    try:
        yield
    except CheckpointError:
        raise
    except LOAD_ERRORS as error:
        # A KeyError's text is the bare key.
        text = repr(error) if isinstance(error, KeyError) else str(error).strip() or repr(error)
        # torch names the weights that do not fit in the line after "Error(s) in loading state_dict for ...:".
        first, *others = (line.strip() for line in text.splitlines())
        reason = f"{first} {others[0]}" if first.endswith(":") and others else first
        raise CheckpointError(f"{message} ({reason})") from None


def load_pretrained(model_class: Any, folder: Path, message: str, **options: Any) -> tuple[Any, list[str]]:
    """Load a model of `transformers`, and list the weights that its safetensors lack; `message`: of the error."""
    with checkpoint_errors(f"{folder}: {message}"), hide_progress_bar():
        model, loading_info = model_class.from_pretrained(
            folder,
            local_files_only=True,
            use_safetensors=True,
            trust_remote_code=False,
            output_loading_info=True,
            **options,
        )
    return model, sorted([*loading_info["missing_keys"], *map(str, loading_info["mismatched_keys"])])


@contextmanager
def hide_progress_bar() -> Iterator[None]:
    """Hide the bar of `transformers`, which would be printed between the lines of our own."""
    from transformers.utils import logging

    was_enabled = logging.is_progress_bar_enabled()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        if was_enabled:
            logging.enable_progress_bar()


def read_weights(paths: Iterable[Path], prefixes: tuple[str, ...] = ("",)) -> dict[str, Tensor]:
    """Read the weights whose names have one of the prefixes from safetensors files."""
    tensors: dict[str, Tensor] = {}
    for path in paths:
        with checkpoint_errors(f"{path}: weights are not readable"), safe_open(path, "pt") as file:
            names = [name for name in file.keys() if name.startswith(prefixes)]  # noqa: SIM118
            tensors |= {name: file.get_tensor(name) for name in names}
    return tensors
