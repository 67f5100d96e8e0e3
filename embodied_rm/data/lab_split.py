"""Which labs of a dataset a model is trained on, which its settings are chosen on, and which judge it."""

from __future__ import annotations

from dataclasses import dataclass

from embodied_rm.data.source import EpisodeSource
from embodied_rm.errors import DataError, UserError

LAB_COLUMN = "lab"  # text column of the table of episodes


@dataclass(frozen=True, kw_only=True)
class LabSplit:
    """Labs by name, each in one part only."""

    train: tuple[str, ...] = ("lab_0", "lab_1", "lab_2", "lab_3")
    validation: tuple[str, ...] = ("lab_4",)
    test: tuple[str, ...] = ("lab_5", "lab_6")

    def __post_init__(self) -> None:
        parts = vars(self)
        for name, labs in parts.items():
            if not labs:
                raise UserError(f"labs.{name} is empty: name at least one lab")
        names = [lab for labs in parts.values() for lab in labs]
        for lab in names:
            if names.count(lab) > 1:
                owners = " and ".join(f"labs.{name}" for name, labs in parts.items() if lab in labs)
                raise UserError(f"{lab} is in {owners}: a lab belongs to one part, else the split leaks")

    def rows(self, source: EpisodeSource, part: str) -> list[int]:
        """Return the episodes of a part.

        Args:
            source: A dataset with a text column `lab`.
            part: "train", "validation" or "test".

        Raises:
            DataError: When one of the part's labs has no episode.
        """
        labs = getattr(self, part)
        found = [meta.metadata.get(LAB_COLUMN) for meta in source.meta]
        for lab in labs:
            if lab not in found:
                known = ", ".join(sorted({str(name) for name in found if name})) or f"no column text/{LAB_COLUMN}"
                raise DataError(f"labs.{part}: there is no episode of {lab}; the dataset has {known}")
        return [row for row, lab in enumerate(found) if lab in labs]
