"""Images of another renderer than that of the training data are reported."""

from __future__ import annotations

import warnings
from dataclasses import replace
from pathlib import Path

import pytest
from painted_frames import make_episode

import embodied_rm as erm
from embodied_rm.checkpoint_io import read_manifest
from embodied_rm.cli.main import main
from embodied_rm.data.provenance import merge_provenance, provenance
from embodied_rm.data.renderers import describe_other_renderer, renderer_difference
from embodied_rm.errors import DataError
from embodied_sim.vec_env import TabletopVecEnv

USUAL, EQUAL, OTHER = "1020aa", "1222a5", "3020aa"


def test_the_difference_is_that_of_the_most_different_color() -> None:
    assert renderer_difference(USUAL, USUAL) == 0
    assert renderer_difference(USUAL, EQUAL) == renderer_difference(EQUAL, USUAL) == 5
    assert renderer_difference(USUAL, OTHER) == 0x20
    assert renderer_difference(USUAL, USUAL * 2) == 255, "of different scenes"


@pytest.mark.parametrize("text", ["", "xyz", "123", "10 20 gg"])
def test_a_text_that_is_no_fingerprint_is_named(text: str) -> None:
    with pytest.raises(DataError, match="is no fingerprint of a renderer"):
        renderer_difference(USUAL, text)


def test_only_a_renderer_unlike_all_known_ones_is_reported() -> None:
    assert describe_other_renderer({}, [OTHER]) is None, "nothing is known"
    assert describe_other_renderer({"renderers": [USUAL]}, []) is None
    assert describe_other_renderer({"renderers": [USUAL]}, [USUAL, EQUAL]) is None
    assert describe_other_renderer({"renderers": [OTHER, USUAL]}, [EQUAL]) is None
    sentence = describe_other_renderer({"renderers": [USUAL]}, [EQUAL, OTHER])
    assert sentence is not None and "differ by up to 32 of 255 levels" in sentence


def test_a_checkpoint_carries_the_renderers_of_its_data() -> None:
    episodes = [
        replace(make_episode(index, 4), metadata={"renderer": text}) for index, text in enumerate((USUAL, OTHER))
    ]
    facts = provenance([*episodes, make_episode(2, 4)])
    assert facts["renderers"] == [USUAL, OTHER]
    assert merge_provenance(facts, {"renderers": [EQUAL]})["renderers"] == [USUAL, EQUAL, OTHER]


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of `collect`, and `model`: trained on it, with a note of another renderer."""
    folder = tmp_path_factory.mktemp("recorded")
    words = ["tasks=[lift_cube]", "num_successes=1", "num_failures=1", "env.num_envs=2", f"out={folder / 'run'}"]
    assert main(["collect", *words]) == 0
    train = ["steps=1", "batch_size=2", "frames_per_episode=4", "eval_percent=0", f"out={folder / 'trained'}"]
    assert main(["train", f"data={folder / 'run'}", *train]) == 0
    model = erm.load_reward_model(folder / "trained")
    assert isinstance(model, erm.ProgressRewardModel)
    (drawn,) = model.metadata["renderers"]
    envs = TabletopVecEnv("lift_cube", 1)
    assert drawn == envs.renderer_fingerprint
    envs.close()
    other = drawn[:-2] + ("00" if drawn[-2:] > "80" else "ff")
    model.metadata |= {"renderers": [other], "splits": [], "scenes": []}
    model.save(folder / "model")
    return folder


def test_evaluate_reports_images_of_another_renderer(recorded: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = [f"data={recorded / 'run'}", "report_episodes=0"]
    assert main(["evaluate", *words, f"checkpoint={recorded / 'model'}", f"out={recorded / 'evaluated'}"]) == 0
    assert "these images are drawn otherwise than those that the model was trained on" in capsys.readouterr().out


def test_learned_reward_warns_of_another_renderer(recorded: Path) -> None:
    envs = TabletopVecEnv("lift_cube", 1, final_views=True)
    with pytest.warns(RuntimeWarning, match="drawn otherwise"):
        erm.LearnedReward(envs, erm.load_reward_model(recorded / "model"), instruction="lift the red cube")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        erm.LearnedReward(envs, erm.load_reward_model(recorded / "trained"), instruction="lift the red cube")
    envs.close()


def test_refine_reports_environments_of_another_renderer(recorded: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = [
        "task=lift_cube",
        f"data={recorded / 'run'}",
        "num_demonstrations=1",
        "steps=2",
        "eval_episodes=2",
        "env.num_envs=2",
    ]
    assert main(["clone", *words, f"out={recorded / 'policy'}"]) == 0
    run = [
        "iterations=1",
        "critic_warmup_iterations=0",
        "rollout_steps=2",
        "env.num_envs=2",
        "eval_episodes=0",
        "final_eval_episodes=2",
    ]
    for name, is_reported in (("model", True), ("trained", False)):
        words = ["task=lift_cube", f"policy={recorded / 'policy'}", f"checkpoint={recorded / name}", *run]
        assert main(["refine", *words, f"out={recorded / f'refined_{name}'}"]) == 0
        assert ("drawn otherwise" in capsys.readouterr().out) == is_reported


def test_the_facts_are_in_the_manifest(recorded: Path) -> None:
    (text,) = read_manifest(recorded / "trained" / "checkpoint")["facts"]["renderers"]
    assert len(text) == 2 * 4 * 4 * 3
