"""An invalid command line is one sentence, and no run folder is written."""

from pathlib import Path

import pytest
from tiny_runs import NUM_EPISODES, NUM_SUCCESSES

from embodied_rm.cli.main import main


def fill(word: str, **folders: Path) -> str:
    """Replace `{name}` by a folder; other braces stay."""
    for name, folder in folders.items():
        word = word.replace(f"{{{name}}}", str(folder))
    return word


@pytest.mark.parametrize(
    ("args", "sentence"),
    [
        (["clone", "task=lift_cub", "data={demos}"], "unknown task 'lift_cub'. Did you mean 'lift_cube'?"),
        (["clone", "task=cube_in_drawer", "data={demos}"], "unknown recorded task 'cube_in_drawer'"),
        (["clone", "task=lift_cube", "data={demos}/nowhere"], "nowhere does not exist"),
        (
            ["clone", "task=lift_cube", "data={demos}", "num_demonstrations=9"],
            f"9 demonstrations requested, the dataset has {NUM_SUCCESSES}",
        ),
        (["clone", "task=lift_cube", "data={demos}", "steps=0"], "steps must be >= 1, got 0"),
        (
            ["clone", "task=lift_cube", "data={demos}", "env.views=[fron]"],
            "unknown view 'fron'. Did you mean 'front'?",
        ),
        (["clone", "task=lift_cube", "data={demos}", "env.backend=gpu"], "unknown backend 'gpu'"),
        (
            ["clone", "task=lift_cube", "data={demos}", "env=gpu"],
            "unknown env 'gpu'. Did you mean 'cpu'? Available: cpu",
        ),
        (["clone", "data={demos}"], "task is required: embodied-rm clone task=..."),
        (["train", "data={demos}/nowhere"], "nowhere does not exist"),
        (["train", "data={demos}", "held_out={demos}"], "held out, but the same episode is trained on"),
        (["train", "data={demos}", "fusion=men"], "unknown value of fusion 'men'. Did you mean 'mean'?"),
        (["train", "data={demos}", "model=clap"], "unknown model 'clap'. Did you mean 'clip'?"),
        (
            ["adapt", "data={demos}", "episode_index=99"],
            f"episode 99 is not among the {NUM_EPISODES} readable episodes",
        ),
        (["adapt", "data={demos}", "instruction=x"], "the dataset has its own instructions"),
        (["score", "data={demos}", "checkpoint={demos}"], "no checkpoint found in"),
        (
            ["score", "data={demos}", "checkpoint={reward_model}", "episode_indices=[99]"],
            f"episode 99 is not among the {NUM_EPISODES} readable episodes",
        ),
        (["evaluate", "data={demos}", "checkpoint={reward_model}", "model_name=baselines"], "model_name must differ"),
        (
            ["evaluate", "data={demos}", "checkpoint={reward_model}", "fusion=man"],
            "unknown fusion 'man'. Did you mean 'mean'?",
        ),
        (
            ["evaluate", "data={unseen}", "checkpoint={reward_model}", "fusion=backward"],
            "(evaluate use_goal_images=true)",
        ),
        (["evaluate", "data={demos}", "checkpoint={reward_model}"], "the model was trained on it"),
        (
            ["evaluate", "data={demos}", "checkpoint={reward_model}", "use_goal_images=true", "goal_images=[a.png]"],
            "set one of them",
        ),
        (
            ["evaluate", "data={unseen}", "checkpoint={reward_model}", "clip_baseline=local-dir:no"],
            "no/open_clip_config.json",
        ),
        (
            ["audit", "data={demos}", "checkpoint={reward_model}", "reward.progress_scale=-1"],
            "progress_scale must be >= 0, got -1.0",
        ),
        (["audit", "data={unseen}", "checkpoint={reward_model}", "frame_stride=0"], "stride must be >= 1, got 0"),
        (["refine", "task=lift_cube", "policy={reward_model}", "checkpoint={reward_model}"], "no policy found in"),
        (["demo", "tasks=[lift]"], "unknown task of the demo 'lift'. Did you mean 'lift_cube'?"),
        (["demo", "collect.tasks=[open_drawer]"], "collect.tasks must include all tasks: lift_cube is missing"),
        (
            ["demo", "train_reward_model=true", "checkpoint={reward_model}"],
            "both select the reward model: set one of them",
        ),
        (
            ["demo", "refine.checkpoint={reward_model}"],
            "refine.checkpoint is set by checkpoint=... or train_reward_model=",
        ),
        (["demo", "train={max_secondz:3}"], "'train.max_secondz'. Did you mean 'train.max_seconds'?"),
        (["collect", "tasks=[lift]"], "unknown task 'lift'. Did you mean 'lift_cube'?"),
        (["collect", "tasks=lift_cube"], "tasks must be a list like [a,b] (each a text), got lift_cube"),
        (["collect", "speed_range=[0.5]"], "speed_range must be two shares [slowest,fastest] in (0, 1], got [0.5]"),
        (["collect", "num_successes=0", "num_failures=0"], "nothing to record"),
    ],
)
def test_an_error_is_one_sentence_and_writes_nothing(
    args: list[str],
    sentence: str,
    demos: Path,
    unseen: Path,
    reward_model: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    out = tmp_path / "run"
    assert (
        main([*(fill(word, demos=demos, unseen=unseen, reward_model=reward_model) for word in args), f"out={out}"]) == 2
    )
    error = capsys.readouterr().err
    assert sentence in error and error.count("\n") == 1
    assert not out.exists()
