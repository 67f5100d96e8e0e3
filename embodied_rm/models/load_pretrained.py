"""Load models of `transformers` and weights from folders; each failure is a `CheckpointError`."""

import difflib
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from safetensors import safe_open
from torch import Tensor, nn

from embodied_rm.build_limit import BuildLimit
from embodied_rm.checkpoint_io import check_regular_file
from embodied_rm.errors import CheckpointError

ADAPTER_FILE, LORA_MARK = "adapter_config.json", ".lora_"
"""File of an adapter's configuration, and part of the names of its weights."""
PANIC_CLASS = "PanicException"  # of pyo3: a failure in Rust, whose class cannot be imported and is no `Exception`
PEFT_CHECK = "is_peft_available"  # function of modules of `transformers`


@contextmanager
def checkpoint_errors(message: str) -> Iterator[None]:
    """Raise `CheckpointError` with a message and the reason for any error of the block, which calls a library."""
    try:
        yield
    except CheckpointError:
        raise
    # The libraries have no exception classes of their own: an invalid description raises an error of any class.
    except BaseException as error:
        if not isinstance(error, Exception) and type(error).__name__ != PANIC_CLASS:
            raise
        # A KeyError's text is the bare key.
        text = repr(error) if isinstance(error, KeyError) else str(error).strip() or repr(error)
        # torch names the weights that do not fit in the line after "Error(s) in loading state_dict for ...:".
        first, *others = (line.strip() for line in text.splitlines())
        reason = f"{first} {others[0]}" if first.endswith(":") and others else first
        raise CheckpointError(f"{message} ({reason})") from None


def load_pretrained(model_class: Any, folder: Path, message: str, **options: Any) -> tuple[Any, list[str]]:
    """Load a model of `transformers`, and list the weights that its safetensors lack; `message`: of the error."""
    limit = limit_weights(folder.glob("*.safetensors"), folder)
    with checkpoint_errors(f"{folder}: {message}"), hide_progress_bar(), without_peft(), limit:
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
def without_peft() -> Iterator[None]:
    """Keep `transformers` from adding an adapter that lies beside the weights, which it does where PEFT is installed.

    The scores of a folder would depend on that, and an adapter's configuration can name more than weights.
    """
    from transformers.integrations import peft
    from transformers.models.auto import auto_factory
    from transformers.utils import is_peft_available  # not that of a module: another thread may have replaced it

    modules = (peft, auto_factory)
    try:
        for module in modules:
            setattr(module, PEFT_CHECK, lambda: False)
        yield
    finally:
        for module in modules:
            setattr(module, PEFT_CHECK, is_peft_available)


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
        check_regular_file(path)
        with checkpoint_errors(f"{path}: weights are not readable"), safe_open(path, "pt") as file:
            names = [name for name in file.keys() if name.startswith(prefixes)]  # noqa: SIM118
            tensors |= {name: file.get_tensor(name) for name in names}
    return tensors


def weight_names(paths: Iterable[Path]) -> list[str]:
    """Return the names of all weights in safetensors files, in order."""
    names: set[str] = set()
    for path in paths:
        check_regular_file(path)
        with checkpoint_errors(f"{path}: weights are not readable"), safe_open(path, "pt") as file:
            names |= set(file.keys())
    return sorted(names)


def limit_weights(paths: Iterable[Path], source: Path) -> BuildLimit:
    """Return the limit for a network with the weights in safetensors files; they are not read."""
    files = sorted(paths)
    return BuildLimit(source, sum(path.stat().st_size for path in files), len(weight_names(files)))


def check_missing(source: str, missing: Collection[str], num_expected: int, stored: Collection[str]) -> None:
    """Raise `CheckpointError` that names an expected weight and stored ones if weights are missing.

    `source`: file or folder of the weights. `num_expected`: number of weights that the model has.
    """
    if missing:
        example = with_nearest(min(missing), stored)
        raise CheckpointError(
            f"{source}: {len(missing)} of {num_expected} weights are missing, such as {example}; "
            f"its files have {len(stored)}, such as {', '.join(sorted(stored)[:3]) or 'none'}"
        )


def load_weights(module: nn.Module, weights: Mapping[str, Tensor], source: str) -> None:
    """Set all weights of a module; `CheckpointError` that names expected and stored ones if they are not the same."""
    expected = module.state_dict().keys()
    check_missing(source, expected - weights.keys(), len(expected), weights.keys())
    if unknown := weights.keys() - expected:
        example = with_nearest(min(unknown), expected)
        raise CheckpointError(f"{source}: {len(unknown)} of {len(weights)} weights are unknown, such as {example}")
    with checkpoint_errors(f"{source}: weights do not fit"):
        module.load_state_dict(weights)


def with_nearest(name: str, names: Iterable[str]) -> str:
    """Return a name, followed by the nearest of some names if one is similar."""
    matches = difflib.get_close_matches(name, names, n=1)
    return f"{name} (the nearest name is {matches[0]})" if matches else name
