"""Instructions in HDF5 files: of a demonstration (RoboCasa), or of all demonstrations of a file (LIBERO)."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from embodied_rm.data.hdf5.file import Hdf5Reader, Hdf5Tree
from embodied_rm.data.issues import list_names

INSTRUCTION_KEYS = (
    "lang",
    "language_instruction",
    "language",
    "instruction",
    "task_description",
    "task_instruction",
    "natural_language_instruction",
)
"""Keys of an instruction in `ep_meta` of a demonstration, among its attributes, or of its datasets of text."""


@dataclass(frozen=True, kw_only=True)
class Instructions:
    """The instructions of a file."""

    of_file: str | None  # of demonstrations without their own; None: there is none
    of_demo: Mapping[str, str] = field(default_factory=dict)  # demonstration -> its own
    unreadable: Mapping[str, str] = field(default_factory=dict)  # demonstration -> why its own cannot be read

    def find(self, demo: str) -> str | None:
        """Return the instruction of a demonstration."""
        return self.of_demo.get(demo, self.of_file)

    def notes(self) -> list[str]:
        """Return a clause per reason for which demonstrations have the instruction of the file."""
        if self.of_file is None:
            return []
        demos: dict[str, list[str]] = {}
        for demo, reason in self.unreadable.items():
            demos.setdefault(reason, []).append(demo)
        instruction = f"the instruction of the file, {self.of_file!r}, is used"
        return [f"{reason} in {list_names(names)}, so {instruction}" for reason, names in demos.items()]


def read_instructions(reader: Hdf5Reader, path: Path, tree: Hdf5Tree, group: str, demos: Sequence[str]) -> Instructions:
    """Read the instructions of the demonstrations `<group>/<demo>`."""
    of_demo: dict[str, str] = {}
    unreadable: dict[str, str] = {}
    for demo in demos:
        datasets = _read_datasets(reader, path, tree, f"{group}/{demo}")
        text, reason = _read_demo(tree, f"{group}/{demo}", datasets)
        of_demo |= {} if text is None else {demo: text}
        unreadable |= {} if reason is None else {demo: reason}
    return Instructions(of_file=_read_file(tree, group), of_demo=of_demo, unreadable=unreadable)


def _read_datasets(reader: Hdf5Reader, path: Path, tree: Hdf5Tree, group: str) -> dict[str, str]:
    """Return key -> instruction of the datasets of text of a demonstration."""
    names = [(key, f"{group}/{folder}{key}") for key in INSTRUCTION_KEYS for folder in ("obs/", "")]
    return {
        key: next(iter(reader.read_texts(path, name)), "") for key, name in names if tree.dtypes.get(name) == "text"
    }


def _read_demo(tree: Hdf5Tree, group: str, datasets: Mapping[str, str]) -> tuple[str | None, str | None]:
    """Return the instruction of one demonstration, or the reason why it cannot be read; None, None: none is stored."""
    attributes, ep_meta = tree.attributes.get(group, {}), tree.read_json(group, "ep_meta")
    values = {**datasets, **attributes, **(ep_meta or {})}
    found = [key for key in INSTRUCTION_KEYS if key in values]
    texts = [text.strip() for key in found if isinstance(text := values[key], str) and text.strip()]
    if texts:
        return texts[0], None
    if ep_meta is None:
        return None, "ep_meta is not a JSON object"
    return None, f"{found[0]} is {values[found[0]]!r}" if found else None


def _read_file(tree: Hdf5Tree, group: str) -> str | None:
    """Return the instruction of all demonstrations of a file, or None."""
    stored = (tree.read_json(group, "problem_info") or {}).get("language_instruction")
    text = " ".join(map(str, stored)) if isinstance(stored, list) else stored
    return text.strip().strip('"') or None if isinstance(text, str) else None
