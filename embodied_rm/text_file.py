"""Read text files of strangers: a file of a few bytes on disk can state terabytes."""

from pathlib import Path

from embodied_rm.errors import DataError

MAX_TEXT_BYTES = 1 << 26  # parsed JSON takes up to 24 times its text


def read_text(path: Path) -> str:
    """Return the content of a text file; `DataError` if it is larger than `MAX_TEXT_BYTES`, or not UTF-8. Line ends are kept."""
    if (num_bytes := path.stat().st_size) > MAX_TEXT_BYTES:
        raise DataError(f"{path}: the file has {num_bytes >> 20} MiB, {MAX_TEXT_BYTES >> 20} are possible for text")
    try:
        return path.read_bytes().decode()
    except UnicodeDecodeError as error:
        raise DataError(f"{path}: is not a text file ({error})") from None
