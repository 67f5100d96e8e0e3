"""Instructions in HDF5 files: of a demonstration (RoboCasa), or of all demonstrations of a file (LIBERO)."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from embodied_rm.data.hdf5.file import Hdf5Reader, Hdf5Tree
from embodied_rm.data.issues import list_names
from embodied_rm.data.subgoal_instruction import join_subgoals

INSTRUCTION_KEYS = (
    "lang",
    "language_instruction",
    "language",
    "instruction",
    "task_description",
    "task_instruction",
    "natural_language_instruction",
)
"""Keys of an instruction in `ep_meta` of a demonstration, among its attributes or those of the file, or of its datasets
of text."""


class OwnInstruction(NamedTuple):
    """The instruction of a demonstration or an episode itself."""

    text: str = ""  # empty: none is stored, or it cannot be read
    issue: str | None = None  # clause on what is stored and not read


@dataclass(frozen=True, kw_only=True)
class Instructions:
    """The instructions of a file."""

    of_file: str | None  # of demonstrations without their own; None: there is none
    of_demo: Mapping[str, OwnInstruction] = field(default_factory=dict)  # demonstration -> its own

    def own(self, demo: str) -> OwnInstruction:
        """Return the instruction that a demonstration has itself."""
        return self.of_demo.get(demo, OwnInstruction())

    def find(self, demo: str) -> str | None:
        """Return the instruction of a demonstration."""
        return self.own(demo).text or self.of_file

    def notes_of(self, demo: str) -> list[str]:
        """Return a clause on what of the own instruction of a demonstration is not read; [] if that is all of it."""
        text, issue = self.own(demo)
        return [issue] if text and issue else []

    def notes(self) -> list[str]:
        """Return a clause per reason for which demonstrations have the instruction of the file."""
        if self.of_file is None:
            return []
        demos: dict[str, list[str]] = {}
        for demo, (text, issue) in self.of_demo.items():
            if issue and not text:
                demos.setdefault(issue, []).append(demo)
        instruction = f"the instruction of the file, {self.of_file!r}, is used"
        return [f"{issue} in {list_names(names)}, so {instruction}" for issue, names in demos.items()]


def read_instructions(reader: Hdf5Reader, path: Path, tree: Hdf5Tree, group: str, demos: Sequence[str]) -> Instructions:
    """Read the instructions of the demonstrations `<group>/<demo>`."""
    of_demo = {demo: _read_demo(reader, path, tree, f"{group}/{demo}") for demo in demos}
    return Instructions(of_file=_read_file(tree, group), of_demo=of_demo)


def _read_demo(reader: Hdf5Reader, path: Path, tree: Hdf5Tree, group: str) -> OwnInstruction:
    """Return the instruction of one demonstration; `ep_meta` precedes its attributes, and these its datasets."""
    attributes, ep_meta = tree.attributes.get(group, {}), tree.read_json(group, "ep_meta")
    names = [(key, f"{folder}{key}") for key in INSTRUCTION_KEYS for folder in ("obs/", "")]
    found = {
        key: read_instruction(reader, path, tree, group, name)
        for key, name in names
        if tree.dtypes.get(f"{group}/{name}") == "text"
    }
    values = {**attributes, **(ep_meta or {})}
    found |= {key: _parse_instruction(key, values[key]) for key in INSTRUCTION_KEYS if key in values}
    own = [found[key] for key in INSTRUCTION_KEYS if key in found]
    if ep_meta is None:
        own.insert(0, OwnInstruction(issue="ep_meta is not a JSON object"))
    return next((instruction for instruction in own if instruction.text), next(iter(own), OwnInstruction()))


def _parse_instruction(key: str, value: Any) -> OwnInstruction:
    text = value.strip() if isinstance(value, str) else ""
    return OwnInstruction(text=text) if text else OwnInstruction(issue=f"{key} is {value!r}")


def read_instruction(reader: Hdf5Reader, path: Path, tree: Hdf5Tree, group: str, name: str) -> OwnInstruction:
    """Return the instruction in a dataset of texts of an episode; of sub-goals, if it changes from step to step."""
    texts = reader.read_texts(path, f"{group}/{name}")
    if len(texts) > 1 and not _is_per_step(tree, group, name):
        return OwnInstruction(issue=f"{name} is {texts!r}")
    if not (text := join_subgoals(texts)):
        return OwnInstruction(issue=f"{name} is {''.join(texts)!r}")
    is_partial = not all(map(str.strip, texts))
    return OwnInstruction(text=text, issue=f"{name} is blank at some steps: left out" if is_partial else None)


def _is_per_step(tree: Hdf5Tree, group: str, name: str) -> bool:
    """Whether a dataset has one row per image of an episode; the last image may lack one, as it does an action."""
    rows, *columns = tree.shapes[f"{group}/{name}"]
    images = [key for key in tree.datasets_in(group) if tree.is_image_dataset(f"{group}/{key}")]
    return columns in ([], [1]) and any(tree.shapes[f"{group}/{key}"][0] in (rows, rows + 1) for key in images)


def _read_file(tree: Hdf5Tree, group: str) -> str | None:
    """Return the instruction of all demonstrations of a file, or None: LIBERO's, else an attribute of the file."""
    stored = (tree.read_json(group, "problem_info") or {}).get("language_instruction")
    text = " ".join(map(str, stored)) if isinstance(stored, list) else stored
    if isinstance(text, str) and (unquoted := text.strip().strip('"')):
        return unquoted
    values = [tree.attributes.get(place, {}).get(key) for place in (group, "") for key in INSTRUCTION_KEYS]
    return next((value.strip() for value in values if isinstance(value, str) and value.strip()), None)
