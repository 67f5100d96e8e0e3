"""Replicas by Ray Serve: what they say is what one service says, and one that is killed loses nobody's request."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest
from serve_ray import run_trial
from serving import SERVE_COMMAND, free_port, run_service
from sprites import episodes

from embodied_rm.cli.main import main
from embodied_rm.errors import UserError
from embodied_rm.models.checkpoint import save_progress_net
from embodied_rm.models.self_test import NUM_EPISODES, NUM_FRAMES
from embodied_rm.serve.service_config import RayConfig, ServeConfig
from embodied_rm.train import TrainConfig, make_net


@pytest.mark.timeout(400)
def test_a_second_replica_is_started_and_one_is_killed_and_every_answer_is_right() -> None:
    """A small one of `python benchmarks/serve_ray.py`."""
    logging.getLogger("httpx").setLevel(logging.WARNING)
    command = [
        *SERVE_COMMAND,
        f"port={free_port()}",
        "ray.min_replicas=1",
        "ray.max_replicas=2",
        "ray.target_ongoing_requests=1",
        "ray.num_cpus=0.5",
    ]
    with run_service(command) as service:
        rows, seen = run_trial(service, clients=3, seconds=2, kills=1)
    assert len(rows) == 2 and seen.num_answered > 0
    assert seen.failures == [] and seen.num_wrong == 0
    assert service.process.returncode == 0


def test_a_model_that_is_not_sound_is_refused_before_a_replica_is_started(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("embodied_rm.models.checkpoint.written", lambda *_: [[0.5] * NUM_EPISODES] * NUM_FRAMES)
    save_progress_net(tmp_path, make_net(episodes(2), TrainConfig(image_size=(32, 32))).eval(), {})
    assert main(["serve", f"checkpoint={tmp_path}", "ray.min_replicas=1", f"port={free_port()}"]) == 2
    assert "the model does not judge as it did when it was made" in capsys.readouterr().err


def test_mistakes() -> None:
    with pytest.raises(UserError, match=r"ray\.max_replicas=4 is of replicas: say how many, ray\.min_replicas=2"):
        RayConfig(max_replicas=4)
    with pytest.raises(UserError, match=r"ray\.min_replicas must be from 1 to ray\.max_replicas, got 3 and 2"):
        RayConfig(min_replicas=3, max_replicas=2)
    with pytest.raises(UserError, match="grpc_port=9000 is of a service alone"):
        ServeConfig(grpc_port=9000, ray=RayConfig(min_replicas=1))
