"""Ray Serve replicas predict the same as a single service, and a killed one loses no request."""

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
from embodied_rm.training import TrainConfig, make_net


@pytest.mark.timeout(700)
def test_scaling_and_a_killed_replica_keep_all_results_right() -> None:
    """A short run of `python benchmarks/serve_ray.py`, as a background command of a script, which ignores Ctrl-C."""
    logging.getLogger("httpx").setLevel(logging.WARNING)
    command = [
        *("env", "--ignore-signal=INT"),
        *SERVE_COMMAND,
        f"port={free_port()}",
        "ray.min_replicas=1",
        "ray.max_replicas=2",
        "ray.target_ongoing_requests=1",
        "ray.num_cpus=0.5",
        "max_queue_delay_ms=100",
    ]
    with run_service(command) as service:
        rows, counts = run_trial(service, clients=3, seconds=2, kills=1)
    assert len(rows) == 2 and counts.num_answered > 0
    assert counts.failures == [] and counts.num_wrong == 0
    assert service.process.returncode == 0


def test_failed_self_test_is_reported_before_replicas_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    wrong_values = [[0.5] * NUM_EPISODES] * NUM_FRAMES
    monkeypatch.setattr("embodied_rm.models.checkpoint.self_test_values", lambda *_: wrong_values)
    save_progress_net(tmp_path, make_net(episodes(2), TrainConfig(image_size=(32, 32))).eval(), {})
    assert main(["serve", f"checkpoint={tmp_path}", "ray.min_replicas=1", f"port={free_port()}"]) == 2
    assert "the model failed its self-test" in capsys.readouterr().err


def test_invalid_replica_configs_are_rejected() -> None:
    with pytest.raises(UserError, match=r"ray\.max_replicas=4 needs replicas: set ray\.min_replicas=2"):
        RayConfig(max_replicas=4)
    with pytest.raises(UserError, match=r"ray\.min_replicas must be from 1 to ray\.max_replicas, got 3 and 2"):
        RayConfig(min_replicas=3, max_replicas=2)
    with pytest.raises(UserError, match="grpc_port=9000 needs a single process"):
        ServeConfig(grpc_port=9000, ray=RayConfig(min_replicas=1))
