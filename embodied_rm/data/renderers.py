"""Whether images of a simulator come from the renderer that a model knows."""

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from embodied_rm.data.source import EpisodeMeta
from embodied_rm.errors import DataError
from embodied_rm.run_folder import Reporter
from embodied_rm.types import IntArray

RENDERER_KEY, RENDERERS_FACT = "renderer", "renderers"
"""Key of the fingerprint in the metadata of an episode, and of those of all training episodes in a checkpoint's facts.

`embodied_sim.render.fingerprint` draws it.
"""
MAX_DIFFERENCE_LEVELS = 5
"""OpenGL and the ray tracer differ by at most 3 of 255 levels."""


def renderer_difference(first: str, second: str) -> int:
    """Return the largest difference of two fingerprints in levels, of 255; 255 for fingerprints of different scenes."""
    colors = [parse_fingerprint(text) for text in (first, second)]
    return int(np.abs(colors[0] - colors[1]).max()) if len(colors[0]) == len(colors[1]) else 255


def parse_fingerprint(text: str) -> IntArray:
    """Return the colors in a fingerprint. Raises `DataError` for a text that is none."""
    try:
        colors = np.frombuffer(bytes.fromhex(text), np.uint8).astype(np.int64)
    except ValueError:
        colors = np.zeros(0, np.int64)
    if not len(colors):
        raise DataError(f"{text[:40]!r} is no fingerprint of a renderer, which has two hexadecimal digits per color")
    return colors


def describe_other_renderer(facts: Mapping[str, Any], present: Iterable[str]) -> str | None:
    """Return a sentence if images come from a renderer that draws otherwise than those of the training data.

    Args:
        facts: Facts of the checkpoint. If they name no renderer, nothing is known, and the result is None.
        present: Fingerprints of the renderers of the images.
    """
    known = facts.get(RENDERERS_FACT, ())
    nearest = [min(renderer_difference(one, other) for other in known) for one in present if known]
    if max(nearest, default=0) <= MAX_DIFFERENCE_LEVELS:
        return None
    return (
        "these images are drawn otherwise than those that the model was trained on: in a test scene, colors differ by "
        f"up to {max(nearest)} of 255 levels. Another MuJoCo, graphics driver or renderer changes the scores: train "
        "the model on images of this renderer, or use that of the training"
    )


def report_other_renderer(facts: Mapping[str, Any], present: Iterable[str], reporter: Reporter) -> None:
    """Log `describe_other_renderer`, if there is something to say."""
    if sentence := describe_other_renderer(facts, present):
        reporter.log(sentence)


def renderers_of(episodes: Iterable[EpisodeMeta]) -> set[str]:
    """Return the fingerprints of the renderers of episodes, as far as their metadata have them."""
    return {episode.metadata[RENDERER_KEY] for episode in episodes if RENDERER_KEY in episode.metadata}
