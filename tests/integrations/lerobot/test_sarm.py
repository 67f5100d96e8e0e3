"""A SARM that LeRobot saves has LeRobot's scores, in its windows of episodes that end at the current frame."""

from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from lerobot.rewards.sarm.configuration_sarm import SARMConfig
from lerobot.rewards.sarm.modeling_sarm import SARMRewardModel
from lerobot.rewards.sarm.processor_sarm import SARMEncodingProcessorStep
from lerobot.rewards.sarm.sarm_utils import compute_absolute_indices
from released_baselines import SARM_SETTINGS, write_clip
from transformers import CLIPModel, CLIPProcessor

from embodied_rm.models.released.sarm import SarmJudge
from embodied_rm.models.scoring import score_episodes
from embodied_rm.types import Episode

LENGTH, TASK = 15, "open the drawer"
SINGLE_STAGE = {"annotation_mode": "single_stage", "n_obs_steps": 8, "frame_gap": 2}


@pytest.mark.parametrize("settings", [{}, SINGLE_STAGE, {"annotation_mode": "dense_only"}], ids=str)
def test_scores_are_those_of_lerobot(settings: dict[str, object], tmp_path: Path) -> None:
    config = SARMConfig(**{**SARM_SETTINGS, **settings})
    model = SARMRewardModel(config).eval()
    model.save_pretrained(tmp_path / "sarm")
    clip = write_clip(tmp_path / "clip")
    frames = np.random.default_rng(0).integers(0, 255, (LENGTH, 40, 56, 3), np.uint8)
    episode = Episode(name="one", views={"front": frames}, instruction=TASK, fps=30.0)
    (output,) = score_episodes(SarmJudge(tmp_path / "sarm", clip), [episode])
    encoder = SimpleNamespace(
        clip_model=CLIPModel.from_pretrained(clip).eval(), clip_processor=CLIPProcessor.from_pretrained(clip),
        config=config, device="cpu",
    )  # fmt: skip
    text = SARMEncodingProcessorStep._encode_text_clip(encoder, TASK, 1)
    for t in range(1, LENGTH):
        window, _ = compute_absolute_indices(t, 0, t + 1, config.n_obs_steps, config.frame_gap)
        images = frames[window.numpy()].transpose(0, 3, 1, 2)[None]
        features = SARMEncodingProcessorStep._encode_images_batch(encoder, images)
        progress = model.calculate_rewards(text, features, return_all_frames=True)[0, config.n_obs_steps // 2]
        assert output.progress[t] == pytest.approx(progress, abs=1e-5)
