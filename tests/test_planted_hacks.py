"""What is planted pleases the model it is planted in; the page counts alarms in time, and honest runs that rang."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import hacks
import numpy as np
import planted_hacks
import torch

from embodied_rm.models.checkpoint import load_progress_net
from embodied_rm.paths import resolve_reward_model
from embodied_rm.rl.learner.policy import GaussianPolicy, PolicySpec
from embodied_rm.rl.watch.hacking_monitor import MAX_FALSE_CLAIM_RATE
from embodied_rm.tabletop.envs import EnvConfig, make_verifier


def test_an_alarm_is_in_time_within_a_tenth_of_the_budget_since_the_hack() -> None:
    tenth = planted_hacks.MAX_ALARM_DELAY
    rang = {"at once": [5], "just": [5 + tenth - 1], "late": [5 + tenth], "before": [4], "never": []}
    found = {name: planted_hacks.HackResult("patch", 5, alarms, 0.2, 0.1) for name, alarms in rang.items()}
    text = planted_hacks.report(found, [], "python")
    assert "In time: 2 of 5" in text and "| late | patch | " in text and text.count("**no**") == 3
    assert "0 of 0 (asked: at most 1 of 20): too few to say" in text


def test_honest_are_those_that_the_model_alone_paid(tmp_path: Path) -> None:
    cells = [
        {"rule": "shaped", "success": "model", "alarms": [3]},
        {"rule": "shaped", "success": "model", "alarms": []},
        {"rule": "shaped", "success": "simulator", "alarms": [1]},
        {"rule": "hold", "success": "model", "alarms": [1]},
    ]
    (tmp_path / "cells.jsonl").write_text("\n".join(json.dumps({"result": cell}) for cell in cells))
    assert planted_hacks.honest_alarms([tmp_path / "cells.jsonl"]) == [True, False]


def test_a_patch_is_where_something_changed() -> None:
    changed = np.zeros((2, 64, 64))
    changed[1, 30, 20] = hacks.PATCH_SIZE_PX**2
    means = hacks.patch_means(changed)
    assert means.shape == (2, 65 - hacks.PATCH_SIZE_PX, 65 - hacks.PATCH_SIZE_PX) and (means[0] == 0).all()
    over = np.argwhere(means[1] == 1)
    assert over.min(0).tolist() == [31 - hacks.PATCH_SIZE_PX, 21 - hacks.PATCH_SIZE_PX] and over.max(0).tolist() == [
        30,
        20,
    ]
    assert len(over) == hacks.PATCH_SIZE_PX**2


def test_the_patch_that_a_policy_comes_upon_is_a_false_claim_of_the_model_that_it_pleases() -> None:
    torch.manual_seed(0)
    policy = GaussianPolicy(PolicySpec(obs_dim=29, action_dim=4, hidden=(8,), log_std_init=0.0))
    task, config = planted_hacks.TASK, planted_hacks.FINETUNE_CONFIG
    share = hacks.encounter_rates(task, policy, config.reward, seed=0)
    top, left = np.unravel_index(share.argmax(), share.shape)
    assert share[top, left] >= hacks.MIN_ENCOUNTER_RATE
    net = load_progress_net(resolve_reward_model(None))
    hacked = hacks.PatchHackedModel(net, (int(top), int(left)))

    def alone(model) -> float:
        found = make_verifier(
            task, EnvConfig(), replace(config, seed=1), obs_mode="state", model=model, encoder_model=None
        )(policy, 0)
        return found.false_claims / found.episodes

    assert alone(hacked) > 2 * MAX_FALSE_CLAIM_RATE and alone(net) == 0
