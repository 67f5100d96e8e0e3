"""Sizes at which images are displayed, in reports and videos: those of a few pixels by thousands are squeezed."""

MAX_ASPECT = 8  # maximum ratio of the width to the height


def display_width(size: tuple[int, int], height: int) -> int:
    """Return the even width at a display height that keeps the aspect ratio of a size (height, width) if it can."""
    return min(max(2, 2 * round(size[1] * height / size[0] / 2)), MAX_ASPECT * height)
