"""Success that HDF5 files state is read under the names that are read in other layouts, or it is reported."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import h5py
import numpy as np
import pytest
from test_hdf5 import DEMOS, LENGTH, write_minari, write_robomimic

from embodied_rm.data.feature_map import FeatureMap
from embodied_rm.data.open_dataset import open_dataset

EXPECTED = "not read, success, next.success, is_success or another was expected"
LOST = np.eye(LENGTH, dtype=bool)[5]


def edit(path: Path, change: Callable[[h5py.Group], object]) -> Path:
    """Change every demonstration, or episode of Minari."""
    with h5py.File(path, "a") as file:
        for group in file["data"].values() if "data" in file else file.values():
            change(group)
    return path


def successes(path: Path) -> list[bool | None]:
    return [meta.success for meta in open_dataset(path, feature_map=FeatureMap(fps=5)).meta]


def messages(path: Path) -> list[str]:
    return [issue.message for issue in open_dataset(path, feature_map=FeatureMap(fps=5)).issues]


def add(name: str, values: object) -> Callable[[h5py.Group], object]:
    return lambda group: group.create_dataset(name, data=values)


def state(name: str, value: object) -> Callable[[h5py.Group], object]:
    return lambda group: group.attrs.update({name: value})


FAILED = {
    "one value": add("success", False),
    "one text": add("success", "failure"),
    "a text per step": add("success", ["failure"] * LENGTH),
    "a text of fixed length": add("is_success", np.array([b"no"] * LENGTH)),
    "a name of LeRobot": add("next.success", np.zeros(LENGTH)),
    "a name of LeRobot among infos": add("infos/task_success", np.zeros(LENGTH, bool)),
    **{
        f"the attribute {name}": state(name, value)
        for name, value in {
            "is_successful": False,
            "task_success": 0,
            "episode_success": np.array([False]),
            "outcome": "failure",
        }.items()
    },
}


@pytest.mark.parametrize("kind", FAILED)
def test_a_stated_failure_precedes_rewards_that_end_in_1(kind: str, tmp_path: Path) -> None:
    path = edit(write_robomimic(tmp_path / "lift.hdf5"), FAILED[kind])
    assert successes(path) == [False] * 3 and messages(path) == []


UNREAD = {
    "observation": (add("obs/success", np.zeros(LENGTH)), f"has obs/success: {EXPECTED}"),
    "in capitals": (state("Success", False), f"has Success: {EXPECTED}"),
    "two": (
        lambda g: [state("successful", 1)(g), add("infos/episode/success", True)(g)],
        "has infos/episode/success, ",
    ),
    "several values": (add("success", np.zeros((LENGTH, 3))), "success has rows of [3]: not read, one value was exp"),
}


@pytest.mark.parametrize("kind", UNREAD)
def test_a_success_that_is_not_read_is_reported_once(kind: str, tmp_path: Path) -> None:
    change, message = UNREAD[kind]
    path = edit(write_robomimic(tmp_path / "lift.hdf5"), change)
    (found,) = messages(path)
    assert found.startswith(message) and successes(path) == [True, False, True]


def test_the_demonstrations_are_named_unless_these_are_all(tmp_path: Path) -> None:
    path = write_robomimic(tmp_path / "lift.hdf5")
    with h5py.File(path, "a") as file:
        file["data/demo_2"].attrs["Success"] = True
    assert messages(path) == [f"demo_2: has Success: {EXPECTED}"]


def test_a_success_that_did_not_last_is_unknown(tmp_path: Path) -> None:
    """As in LeRobot's datasets; rewards may say more."""
    path = edit(write_robomimic(tmp_path / "lift.hdf5"), add("success", LOST))
    assert successes(path) == [True, False, True]
    edit(path, lambda group: group.pop("rewards"))
    assert successes(path) == [None] * 3 and messages(path) == []


def test_without_values_nothing_is_stated(tmp_path: Path) -> None:
    path = edit(write_robomimic(tmp_path / "lift.hdf5"), add("success", h5py.Empty("f")))
    edit(path, add("is_success", np.zeros(0)))
    assert successes(path) == [True, False, True] and messages(path) == []


def write_episodes(folder: Path, name: str, values: object) -> Path:
    path = write_minari(folder / "doors")
    edit(path / "data/main_data.hdf5", lambda group: group.pop("infos/success"))
    edit(path / "data/main_data.hdf5", add(name, values))
    return path


@pytest.mark.parametrize("name", ["infos/success", "infos/task_success"])
@pytest.mark.parametrize("values", [False, "failure", np.zeros(LENGTH + 1)])
def test_minaris_infos_state_a_success(name: str, values: object, tmp_path: Path) -> None:
    path = write_episodes(tmp_path, name, values)
    assert successes(path) == [False] * DEMOS and messages(path) == []


def test_minaris_other_infos_are_reported(tmp_path: Path) -> None:
    path = write_episodes(tmp_path, "infos/episode/success", True)
    assert successes(path) == [None] * DEMOS and messages(path) == [f"has infos/episode/success: {EXPECTED}"]


def test_minaris_success_that_did_not_last_is_unknown(tmp_path: Path) -> None:
    assert successes(write_episodes(tmp_path, "infos/success", LOST)) == [None] * DEMOS


def test_rewards_of_0_beside_a_stated_success_need_no_note(tmp_path: Path) -> None:
    path = edit(write_robomimic(tmp_path / "lift.hdf5"), lambda group: group["rewards"].write_direct(np.zeros(LENGTH)))
    edit(path, state("success", True))
    assert successes(path) == [True] * 3 and messages(path) == []
    with h5py.File(path, "a") as file:
        del file["data/demo_2"].attrs["success"]
    note = "every reward is 0, so the success of its episodes that state none is unknown"
    assert successes(path) == [True, None, True] and messages(path) == [note]
