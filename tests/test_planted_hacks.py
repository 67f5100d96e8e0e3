"""Planted hacks exploit the hacked model; the results page counts alarms in time and false alarms."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import planted_hacks
import reward_hacks
import torch

from embodied_rm.models.checkpoint import load_progress_net
from embodied_rm.paths import resolve_reward_model
from embodied_rm.rl.learner.policy import GaussianPolicy, PolicySpec
from embodied_rm.rl.watch.hacking_monitor import MAX_FALSE_CLAIM_RATE
from embodied_rm.tabletop.envs import EnvConfig, make_verifier


def test_alarm_is_in_time_within_a_tenth_of_the_iterations() -> None:
    delay = planted_hacks.MAX_ALARM_DELAY
    alarms = {"immediate": [5], "last": [5 + delay - 1], "late": [5 + delay], "before": [4], "never": []}
    results = {name: planted_hacks.HackResult("patch", 5, values, 0.2, 0.1) for name, values in alarms.items()}
    text = planted_hacks.report(results, [], "python")
    assert "In time: 2 of 5" in text and "| late | patch | " in text and text.count("**no**") == 3
    assert "0 of 0 (target: at most 1 of 20): too few runs" in text


def test_honest_runs_are_rewarded_by_the_model_only(tmp_path: Path) -> None:
    cells = [
        {"rule": "shaped", "success_source": "model", "alarms": [3]},
        {"rule": "shaped", "success_source": "model", "alarms": []},
        {"rule": "shaped", "success_source": "simulator", "alarms": [1]},
        {"rule": "hold", "success_source": "model", "alarms": [1]},
    ]
    (tmp_path / "cells.jsonl").write_text("\n".join(json.dumps({"result": cell}) for cell in cells))
    assert planted_hacks.honest_alarms([tmp_path / "cells.jsonl"]) == [True, False]


def test_patch_means_find_the_changed_pixels() -> None:
    pixel_change = np.zeros((2, 64, 64))
    pixel_change[1, 30, 20] = reward_hacks.PATCH_SIZE_PX**2
    means = reward_hacks.patch_means(pixel_change)
    assert (
        means.shape == (2, 65 - reward_hacks.PATCH_SIZE_PX, 65 - reward_hacks.PATCH_SIZE_PX) and (means[0] == 0).all()
    )
    corners = np.argwhere(means[1] == 1)
    assert corners.min(0).tolist() == [
        31 - reward_hacks.PATCH_SIZE_PX,
        21 - reward_hacks.PATCH_SIZE_PX,
    ] and corners.max(0).tolist() == [
        30,
        20,
    ]
    assert len(corners) == reward_hacks.PATCH_SIZE_PX**2


def test_encountered_patch_gives_false_success_claims() -> None:
    torch.manual_seed(0)
    policy = GaussianPolicy(PolicySpec(obs_dim=29, action_dim=4, hidden=(8,), log_std_init=0.0))
    task, config = planted_hacks.TASK, planted_hacks.FINETUNE_CONFIG
    rates = reward_hacks.encounter_rates(task, policy, config.reward, seed=0)
    top, left = np.unravel_index(rates.argmax(), rates.shape)
    assert rates[top, left] >= reward_hacks.MIN_ENCOUNTER_RATE
    net = load_progress_net(resolve_reward_model(None))
    hacked = reward_hacks.PatchHackedModel(net, (int(top), int(left)))

    def false_claim_rate(model) -> float:
        result = make_verifier(task, EnvConfig(), replace(config, seed=1), obs_mode="state", encoder_model=None)(
            policy, 0, model
        )
        return result.false_claims / result.episodes

    assert false_claim_rate(hacked) > 2 * MAX_FALSE_CLAIM_RATE and false_claim_rate(net) == 0
