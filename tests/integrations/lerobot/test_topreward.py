"""TOPReward has the token ids, the pixels and the log-probability of LeRobot's port of it, on the same files."""

from pathlib import Path

import numpy as np
import pytest
import tiny_vlm
import torch
from lerobot.lerobot_types import TransitionKey
from lerobot.rewards.topreward import TOPRewardConfig, TOPRewardModel
from lerobot.rewards.topreward.processor_topreward import TOPREWARD_FEATURE_PREFIX, TOPRewardEncoderProcessorStep

from embodied_rm.models.judges.chat import Query
from embodied_rm.models.judges.released_prompts import TOPREWARD_PROMPT, TOPREWARD_STATEMENT
from embodied_rm.models.released.topreward import FPS, TopRewardChat

VIEW = "observation.images.top"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_vlm.save_model(tmp_path_factory.mktemp("qwen3"), "qwen3_vl")


@pytest.mark.parametrize("size", [(48, 64), (128, 96)])
@pytest.mark.parametrize("length", [2, 5, 16])
def test_ids_and_log_probability_are_those_of_the_port(folder: Path, length: int, size: tuple[int, int]) -> None:
    task, frames = "lift the red cube", np.random.default_rng(length).integers(0, 255, (length, *size, 3), np.uint8)
    port = TOPRewardModel(TOPRewardConfig(vlm_name=str(folder), device="cpu", torch_dtype="float32")).eval()
    encoder = TOPRewardEncoderProcessorStep(vlm_name=str(folder))
    transition = {
        TransitionKey.OBSERVATION: {VIEW: torch.from_numpy(frames).permute(0, 3, 1, 2)[None]},
        TransitionKey.COMPLEMENTARY_DATA: {"task": task},
    }
    batch = encoder(transition)[TransitionKey.OBSERVATION]
    query = Query(parts=(frames, TOPREWARD_PROMPT, TOPREWARD_STATEMENT.replace("{instruction}", task)), fps=FPS)
    chat = TopRewardChat(folder)
    for name, tensor in chat.encode([query]).items():
        torch.testing.assert_close(tensor, batch[f"{TOPREWARD_FEATURE_PREFIX}{name}"], rtol=0, atol=0)
    (answer,) = chat.ask([query])
    assert answer.logprobs == pytest.approx({"True": port.compute_reward(batch).item()}, abs=1e-5)
