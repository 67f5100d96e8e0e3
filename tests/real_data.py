"""Where the recordings of real robots lie. They are read from there and never copied."""

import csv
import shutil
from collections.abc import Sequence
from pathlib import Path

REAL_DATA = Path(__file__).parents[1].parent / "shared" / "data"
DROID = REAL_DATA / "droid"


def copy_droid(folder: Path, labs: Sequence[str], count: int) -> Path:
    """Copy the first episodes of each of these labs of DROID to a folder outside of the project, as a dataset."""
    rows = droid_rows()
    chosen = [row for lab in labs for row in [r for r in rows if r["text/lab"] == lab][:count]]
    (folder / "videos").mkdir(parents=True)
    for row in chosen:
        shutil.copy(DROID / row["exterior"], folder / row["exterior"])
    with (folder / "episodes.csv").open("w", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]))
        writer.writeheader()
        writer.writerows(chosen)
    return folder


def droid_rows() -> list[dict[str, str]]:
    """The table of DROID's episodes. To open the dataset takes ten seconds, for the headers of 906 videos."""
    with (DROID / "episodes.csv").open(newline="") as file:
        return list(csv.DictReader(file))
