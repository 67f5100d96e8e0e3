"""Values of datasets: names after which files can be named, texts that can be stored, and credible frame rates."""

from typing import TypeGuard

from embodied_rm.errors import DataError

MAX_NAME_BYTES = 200
"""Maximum length of a name in UTF-8: file systems allow 255 bytes, and suffixes follow."""

MIN_FPS, MAX_FPS = 0.001, 10_000.0
"""Frame rates (Hz) outside of which a description is not credible, and no video can be written."""


def check_name(name: str, kind: str) -> None:
    """Raise `DataError` for a name after which no file can be named; `kind` is a noun, e.g. "episode name".

    A name may have several parts, separated by "/", and leads out of no folder.
    """
    check_text(name, f"the {kind}")
    if not set(name.split("/")).isdisjoint(("", ".", "..")) or any(char in "\\:" or ord(char) < 32 for char in name):
        raise DataError(f"{name[:80]!r} is not a valid {kind}: files are named after it")
    if (num_bytes := len(name.encode())) > MAX_NAME_BYTES:
        raise DataError(f"the {kind} {name[:40]!r}... has {num_bytes} bytes, {MAX_NAME_BYTES} are possible")


def check_text(text: object, kind: str) -> None:
    """Raise `DataError` unless a value is a text that UTF-8 can encode; `kind` is a noun for it."""
    if not isinstance(text, str):
        raise DataError(f"{kind} is {text!r}, a text was expected")
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise DataError(
            f"{kind} has the character {text[error.start]!r}, which is half of one: {text[:40]!r}"
        ) from None


def is_frame_rate(value: object) -> TypeGuard[int | float]:
    """Whether a value is a credible frame rate, Hz."""
    return isinstance(value, int | float) and not isinstance(value, bool) and MIN_FPS <= value <= MAX_FPS
