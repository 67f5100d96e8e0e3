"""Limits of what the processor of a model folder may do: the size of its images, and the growth of texts.

The weights of a model bound neither: a description of a few bytes can ask for images of terabytes.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from embodied_rm.checkpoint_io import check_regular_file
from embodied_rm.errors import CheckpointError
from embodied_rm.models.load_pretrained import checkpoint_errors
from embodied_rm.text_file import read_text

if TYPE_CHECKING:
    from tokenizers import Tokenizer

MAX_SIDE_PX = 4096
MAX_PIXELS = MAX_SIDE_PX**2
PIXEL_COUNT_CLASS = "Qwen"  # begins the names of image processors whose edges are numbers of pixels
COUNT_KEYS, SIDE_KEYS = ("shortest_edge", "longest_edge"), ("height", "width")
SIZE_ATTRIBUTES = ("size", "crop_size", "max_size", "pad_size")
MAX_GROWTH = 64.0  # of a text, by all replacements of a tokenizer together
TOKENIZER_FILE = "tokenizer.json"
GROWING_PARTS = ("normalizer", "decoder", "post_processor")
MAX_ADDED_TOKENS = 64  # that a tokenizer adds to a text, beyond any truncation
PROBE_TEXT, PROBE_TOKENS = "lift the cube", 128


def check_image_processor(processor: Any, folder: Path) -> None:
    """Raise `CheckpointError` for an image or video processor that makes images of more than `MAX_PIXELS`."""
    counts_pixels = type(processor).__name__.startswith(PIXEL_COUNT_CLASS)
    max_edge = MAX_PIXELS if counts_pixels else MAX_SIDE_PX
    for attribute in SIZE_ATTRIBUTES:
        stated = getattr(processor, attribute, None)
        sizes = stated if isinstance(stated, Mapping) else vars(stated) if hasattr(stated, "__dict__") else {}
        limits = {**dict.fromkeys(COUNT_KEYS, max_edge), **dict.fromkeys(SIDE_KEYS, MAX_SIDE_PX)}
        for key, limit in limits.items():
            value = sizes.get(key)
            if value is not None and not (isinstance(value, int | float) and 0 < value <= limit):
                raise CheckpointError(f"{folder}: its images have {key}={value!r}, at most {limit} is possible")


def check_tokenizer(folder: Path) -> None:
    """Check the tokenizer of a folder, if it has one, see `parse_tokenizer`."""
    if (folder / TOKENIZER_FILE).exists():
        read_tokenizer(folder)


def read_tokenizer(folder: Path) -> Tokenizer:
    """Read the tokenizer of a folder, see `parse_tokenizer`."""
    path = folder / TOKENIZER_FILE
    check_regular_file(path)
    with checkpoint_errors(f"{path}: not the description of a tokenizer"):
        text = read_text(path)
    return parse_tokenizer(text, path)


def parse_tokenizer(text: str, source: object) -> Tokenizer:
    """Return a tokenizer without padding that encodes a probe.

    `CheckpointError` for one that cannot, or that makes a text longer than `MAX_GROWTH` times.
    """
    from tokenizers import Tokenizer

    _check_growth(text, source)
    with checkpoint_errors(f"{source}: not a tokenizer"):
        tokenizer = Tokenizer.from_str(text)
        tokenizer.no_padding()
        tokenizer.enable_truncation(PROBE_TOKENS)
        tokenizer.encode(PROBE_TEXT)
    return tokenizer


def _check_growth(text: str, source: object) -> None:
    with checkpoint_errors(f"{source}: not the description of a tokenizer"):
        description = json.loads(text)
        growth = max(math.prod(replacement_growths(description.get(name))) for name in GROWING_PARTS)
        num_added = count_added_tokens(description.get("post_processor"))
    if not growth <= MAX_GROWTH:
        raise CheckpointError(
            f"{source}: its replacements make a text {growth:.3g} times longer, {MAX_GROWTH:g} times is possible"
        )
    if num_added > MAX_ADDED_TOKENS:
        raise CheckpointError(f"{source}: it adds {num_added} tokens to a text, {MAX_ADDED_TOKENS} are possible")


def replacement_growths(part: Any) -> Iterator[float]:
    """Yield how many times longer each replacement in a part of a tokenizer makes a text, at least 1."""
    if isinstance(part, list):
        for entry in part:
            yield from replacement_growths(entry)
    elif isinstance(part, dict):
        if part.get("type") == "Replace":
            text = part["pattern"].get("String")
            # A regular expression may match the empty text before each character.
            yield max(1.0, len(part["content"]) / len(text) if text else 1 + len(part["content"]))
        if part.get("type") == "TemplateProcessing":
            yield max(1.0, sum("Sequence" in piece for piece in part["single"]))
        for entry in part.values():
            yield from replacement_growths(entry)


def count_added_tokens(part: Any) -> int:
    """Return how many tokens the templates in a part of a tokenizer add to one text."""
    if not isinstance(part, dict):
        return sum(map(count_added_tokens, part)) if isinstance(part, list) else 0
    if part.get("type") != "TemplateProcessing":
        return sum(map(count_added_tokens, part.values()))
    names = [piece["SpecialToken"]["id"] for piece in part["single"] if "SpecialToken" in piece]
    return sum(len(part["special_tokens"][name]["ids"]) for name in names)
