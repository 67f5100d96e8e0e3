"""LeRobot from 0.6 finds our reward model by its type, and gets the progress that `embodied-rm score` writes."""

import numpy as np
import pandas as pd
import pytest
import torch
from conftest import ROOT, Day
from lerobot.configs.parser import load_plugin
from lerobot.configs.rewards import RewardModelConfig
from lerobot.datasets.lerobot_dataset import LeRobotDataset
from lerobot.rewards import make_reward_model, make_reward_model_config, make_reward_pre_post_processors

from embodied_rm import UserError, load_reward_model

load_plugin("embodied_rm.lerobot")
CHECKPOINTS = ROOT / "assets" / "checkpoints"
FRONT, WRIST = "observation.images.front", "observation.images.wrist"
DECODER_TOLERANCE = 0.03
"""LeRobot decodes the videos with other color conversions than `embodied-rm score`."""


@pytest.fixture(scope="module")
def config() -> RewardModelConfig:
    return make_reward_model_config("embodied_rm", device="cpu")


@pytest.fixture(scope="module")
def episodes(day: Day) -> list[dict[str, torch.Tensor | list[str]]]:
    """The first two episodes as clips [1, T, C, H, W]."""
    data = LeRobotDataset("local/lift_cube", root=day.dataset, video_backend="pyav")
    index = pd.read_parquet(day.dataset / "sarm_progress.parquet").groupby("episode_index")["index"]
    clips = []
    for _, rows in list(index)[:2]:
        items = [data[int(row)] for row in rows]
        views = {key: torch.stack([item[key] for item in items])[None] for key in (FRONT, WRIST)}
        clips.append({**views, "task": [items[0]["task"]]})
    return clips


@pytest.fixture(scope="module")
def scores(day: Day) -> list[np.ndarray]:
    """The scores of these episodes."""
    frames = pd.read_parquet(day.dataset / "sarm_progress.parquet").groupby("episode_index")["progress_dense"]
    return [values.to_numpy() for _, values in list(frames)[:2]]


def test_frames_of_running_episodes_get_the_scores_of_their_dataset(config, episodes, scores) -> None:
    model, (preprocess, _) = make_reward_model(config), make_reward_pre_post_processors(config)
    length = min(map(len, scores))
    for _ in range(2):
        model.reset()
        for t in range(length):
            views = {key: torch.cat([clip[key][:, t] for clip in episodes]) for key in (FRONT, WRIST)}
            tasks = [clip["task"][0] for clip in episodes]
            reward = model.compute_reward(preprocess({**views, "task": tasks}))
            assert reward.shape == (2,) and reward.dtype == torch.float32
            np.testing.assert_allclose(reward, [score[t] for score in scores], atol=DECODER_TOLERANCE)
    with pytest.raises(UserError, match="2"):
        model.compute_reward({FRONT: views[FRONT][:1], "task": tasks[:1]})


def test_a_clip_gets_the_score_of_its_last_frame_and_disturbs_no_running_episode(config, episodes, scores) -> None:
    model = make_reward_model(config)
    first = {**{key: episodes[0][key][:, 0] for key in (FRONT, WRIST)}, "task": episodes[0]["task"]}
    assert model.compute_reward(first).tolist() == [0]
    for clip, score in zip(episodes, scores, strict=True):
        assert model.compute_reward(clip).item() == pytest.approx(score[-1], abs=DECODER_TOLERANCE)
    as_bytes = {key: (episodes[0][key] * 255).round().byte() for key in (FRONT, WRIST)}
    assert model.compute_reward({**as_bytes, "task": episodes[0]["task"]}) == model.compute_reward(episodes[0])
    last = {**{key: episodes[0][key][:, -1] for key in (FRONT, WRIST)}, "task": episodes[0]["task"]}
    assert model.compute_reward(last).item() > 0.5, "the second frame of the running episode shows a lifted cube"


def test_images_are_renamed_to_the_views_of_the_model(episodes) -> None:
    config = make_reward_model_config("embodied_rm", device="cpu", rename_map={"observation.images.top": FRONT})
    model, (preprocess, _) = make_reward_model(config), make_reward_pre_post_processors(config)
    clip = {"observation.images.top": episodes[0][FRONT][0], "task": episodes[0]["task"][0]}
    frame = preprocess({**clip, "observation.images.top": clip["observation.images.top"][0]})
    assert frame[FRONT].shape == (1, 3, 64, 64) and model.compute_reward(frame).tolist() == [0]
    with pytest.raises(UserError, match="the model knows the views front, side, wrist; the batch has top"):
        model.compute_reward({"observation.images.top": episodes[0][FRONT], "task": ["lift the red cube"]})
    with pytest.raises(UserError, match=r"and task, got observation\.state"):
        model.compute_reward({"observation.state": torch.zeros(1, 7)})
    with pytest.raises(UserError, match=r"same episodes, got front \[1, 3, 8, 8\], wrist \[2, 3, 8, 8\]"):
        model.compute_reward({FRONT: torch.zeros(1, 3, 8, 8), WRIST: torch.zeros(2, 3, 8, 8), "task": ["lift"]})
    with pytest.raises(UserError, match=r"must be \[B, 3, H, W\]"):
        model.compute_reward({FRONT: torch.zeros(1, 64, 64, 3), "task": ["lift the red cube"]})


def test_cameras_of_other_sizes_and_padding_masks_are_fine(config, episodes, scores) -> None:
    model, clip = make_reward_model(config), episodes[0]
    large = torch.nn.functional.interpolate(clip[WRIST][0], size=(96, 128), mode="bilinear")[None]
    masks = {f"{key}_is_pad": torch.zeros(clip[FRONT].shape[:2], dtype=torch.bool) for key in (FRONT, WRIST)}
    reward = model.compute_reward({**clip, **masks, WRIST: large, "observation.images.top": clip[FRONT][:, :1]})
    assert reward.item() == pytest.approx(scores[0][-1], abs=0.1), "the view top is unknown to the model"


def test_a_saved_model_is_loaded_by_lerobot_and_by_us(config, episodes, tmp_path) -> None:
    model = make_reward_model(config)
    model.save_pretrained(tmp_path)
    loaded_config = RewardModelConfig.from_pretrained(tmp_path)
    assert loaded_config.type == "embodied_rm"
    loaded_config.pretrained_path = str(tmp_path)
    loaded = make_reward_model(loaded_config)
    assert loaded.compute_reward(episodes[0]) == model.compute_reward(episodes[0]) and not loaded.is_trainable
    assert load_reward_model(tmp_path).input_spec == model.reward_model.input_spec


def test_pretrained_path_is_a_source_of_load_reward_model(config, episodes) -> None:
    long = make_reward_model_config("embodied_rm", device="cpu", pretrained_path=str(CHECKPOINTS / "long"))
    reward = make_reward_model(long).compute_reward(episodes[0]).item()
    assert 0 < reward <= 1 and reward != make_reward_model(config).compute_reward(episodes[0]).item()
    with pytest.raises(UserError, match="no_such_model"):
        make_reward_model(make_reward_model_config("embodied_rm", device="cpu", pretrained_path="no_such_model"))
