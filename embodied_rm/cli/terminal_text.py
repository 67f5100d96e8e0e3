"""Text of datasets and models on a terminal: no character of it moves the cursor, sets a title or reorders a line."""

import unicodedata

BIDI_CONTROLS = frozenset("\u061c\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069")
"""Characters that change the order in which a terminal draws its neighbors (Unicode UAX 9)."""
ESCAPED_CATEGORIES = ("Cc", "Cs", "Zl", "Zp")  # controls, of C1 too; lone surrogates; separators of lines


def escape_controls(text: str, kept: str = "") -> str:
    """Replace what a terminal would obey by its Python escape, such as `\\x1b`; characters in `kept` stay."""
    return "".join(char if char in kept or not is_control(char) else ascii(char)[1:-1] for char in text)


def is_control(char: str) -> bool:
    """Return whether a terminal would obey a character, or could not encode it, instead of drawing it."""
    return char in BIDI_CONTROLS or unicodedata.category(char) in ESCAPED_CATEGORIES
