"""Read text files of strangers: a file of a few bytes on disk can state terabytes."""

from pathlib import Path

from embodied_rm.errors import DataError

MAX_TEXT_BYTES = 1 << 26  # parsed JSON takes up to 24 times its text


def read_text(path: Path) -> str:
    """Return the content of a text file with its line ends; `DataError` if it is not UTF-8, or too large."""
    if (num_bytes := path.stat().st_size) > MAX_TEXT_BYTES:
        raise DataError(f"{path}: the file has {num_bytes >> 20} MiB, {MAX_TEXT_BYTES >> 20} are possible for text")
    try:
        return path.read_bytes().decode()
    except UnicodeDecodeError as error:
        raise DataError(f"{path}: is not a text file ({error})") from None
