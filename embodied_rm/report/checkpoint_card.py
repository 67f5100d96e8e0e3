"""Card of a checkpoint that has none: what it is and how it is loaded, without any number that was not stored."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from embodied_rm.report.front_matter import front_matter, has_front_matter
from embodied_rm.report.markdown import markdown_table


def complete_card(
    card: str | None,
    manifest: Mapping[str, Any],
    source: str,
    views: tuple[str, ...] | None,
    image_size: tuple[int, int] | None,
) -> str:
    """Return the card that is uploaded with a checkpoint.

    Args:
        card: The card of the checkpoint, which gets a head if it has none. None: a new one.
        manifest: The manifest of the checkpoint.
        source: The name that loads it, `hf:owner/name@branch#sha256=...`.
        views: View names that the model knows. None: any.
        image_size: Height and width in pixels. None: that of the video.

    Returns:
        Markdown with front matter.
    """
    if card is not None and has_front_matter(card):
        return card
    head = front_matter(tags=[manifest["architecture"]], datasets=manifest["facts"].get("datasets", ()))
    return f"{head}\n{checkpoint_card(manifest, source, views, image_size) if card is None else card}"


def checkpoint_card(
    manifest: Mapping[str, Any], source: str, views: tuple[str, ...] | None, image_size: tuple[int, int] | None
) -> str:
    """Return the text of a new card, see `complete_card`."""
    rows = [
        ("architecture", f"`{manifest['architecture']}`"),
        ("views", "any" if views is None else ", ".join(f"`{view}`" for view in views)),
        ("image size", "that of the video" if image_size is None else "{} x {} pixels".format(*image_size)),
        ("SHA-256 of the manifest", f"`{manifest['manifest_sha256']}`"),
    ]
    if "episodes" in manifest["facts"]:
        rows.insert(3, ("training episodes", f"{manifest['facts']['episodes']}"))
    return "\n".join([
        "# Reward model",
        "",
        "A reward model for robots, of the library `embodied_rm`: it predicts progress and success of every frame of a",
        "video. No measurement is stored with it. Evaluate and audit it on your own episodes before you use it.",
        "",
        *markdown_table(("", "value"), rows),
        "",
        "## Load",
        "",
        "```python",
        "import embodied_rm as erm",
        "",
        f'model = erm.load_reward_model("{source}")',
        'output = model.score(frames, "what the robot is asked to do")  # uint8 [T, H, W, 3], or view -> such an array',
        "```",
        "",
        "Nothing that is loaded can run code.",
        "",
    ])  # fmt: skip
