"""A failing model, an outage, too many episodes and strangers: the service refuses what it must, and nothing else."""

from __future__ import annotations

import io
import json
import logging
import threading
import time

import httpx
import numpy as np
import pytest
from known_models import HashModel, serve_model
from services import LIFT, expected_progress, frames_by_view, random_videos, serving

from embodied_rm.client import episode_handles
from embodied_rm.client.client_errors import (
    EpisodeLostError,
    ServiceError,
    ServiceUnavailableError,
)
from embodied_rm.client.reward_client import RewardClient
from embodied_rm.serve.service_config import ServeConfig, ServeLimits
from embodied_rm.serve.service_metrics import add_log_stream


class FailingModel(HashModel):
    """Predicts NaN for frames whose first pixel is black, and raises for those whose first pixel is white."""

    def step(self, state, views):
        output, next_state = super().step(state, views)
        corner = views.frames[:, 0, 0, 0]
        if (corner == 255).all(axis=1).any():
            raise RuntimeError("the model broke")
        output.progress[(corner == 0).all(axis=1)] = np.nan
        return output, next_state


def test_nan_prediction_is_invalid_and_affects_no_other_row() -> None:
    video = random_videos(4, 4)
    video[2, 1, 0, 0, 0] = 0
    with serving(FailingModel()) as url, RewardClient(url) as client:
        _, handles = episode_handles.reset_episodes(
            client, range(4), [0] * 4, [LIFT] * 4, frames_by_view(video[0]), keep_state=True
        )
        before, handles = episode_handles.step_episodes(client, handles, frames_by_view(video[1]))
        prediction, handles = episode_handles.step_episodes(client, handles, frames_by_view(video[2]))
        assert prediction.valid.tolist() == [True, False, True, True] and prediction.progress[1] == before.progress[1]
        after, _ = episode_handles.step_episodes(client, handles, frames_by_view(video[3]))
        assert after.progress[0] == pytest.approx(expected_progress(video[:, 0])[-1])
        assert after.progress[1] == pytest.approx(
            expected_progress(video[[0, 1, 3], 1])[-1]
        )  # the frame with NaN is skipped
        assert "embodied_rm_non_finite_outputs_total 1.0" in httpx.get(f"{url}/metrics").text


def test_failing_request_does_not_fail_its_batch() -> None:
    video, model = random_videos(2, 2), FailingModel()
    video[1, 1, 0, 0, 0] = 255
    results: dict[int, object] = {}

    def ask(row: int) -> None:
        with RewardClient(url, client_id=f"r{row}") as client:
            try:
                results[row] = client.step([0], [0], [1], frames_by_view(video[1, row : row + 1])).progress[0]
            except ServiceError as error:
                results[row] = error.status

    with serving(model) as url:
        for row in range(2):
            with RewardClient(url, client_id=f"r{row}") as client:
                client.reset([0], [0], [LIFT], frames_by_view(video[0, row : row + 1]))
        model.batch_s = 0.1
        threads = [threading.Thread(target=ask, args=(row,)) for row in (0, 1, 0)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert results == {0: pytest.approx(expected_progress(video[:, 0])[0]), 1: 500}


def test_failed_self_test_rejects_all_requests() -> None:
    with serving(HashModel(), passed_self_test=False) as url, RewardClient(url, retry_timeout_s=0.2) as client:
        assert httpx.get(f"{url}/v2/health/ready").status_code == 503
        assert httpx.get(f"{url}/v2/health/live").status_code == 200
        with pytest.raises(ServiceUnavailableError, match="failed its self-test"):
            client.reset([0], [0], [LIFT], frames_by_view(random_videos(1, 1)[0]))


def test_outage_is_retried_then_raised() -> None:
    start = time.monotonic()
    with (
        RewardClient("http://127.0.0.1:9", retry_timeout_s=0.5) as client,
        pytest.raises(ServiceUnavailableError, match=r"0\.5 s"),
    ):
        client.get_metadata()
    assert 0.2 < time.monotonic() - start < 5 and client.num_retries >= 2


def test_idle_episodes_are_evicted_and_excess_ones_rejected() -> None:
    config = ServeConfig(port=0, limits=ServeLimits(max_sessions=3, max_client_share=1, idle_timeout_s=0.3))
    video = random_videos(3, 2)
    with serving(HashModel(), config=config) as url, RewardClient(url, retry_timeout_s=0.1) as client:
        client.reset([0, 1, 2], [0] * 3, [LIFT] * 3, frames_by_view(video[0]))
        with pytest.raises(ServiceUnavailableError, match="3 episodes are active already"):
            client.reset([3], [0], [LIFT], frames_by_view(video[0, :1]))
        time.sleep(0.4)
        client.reset([3], [0], [LIFT], frames_by_view(video[0, :1]))
        with pytest.raises(EpisodeLostError):
            client.step([0], [0], [1], frames_by_view(video[1, :1]))


def test_every_line_of_the_log_is_json() -> None:
    stream, handlers, video = io.StringIO(), list(logging.getLogger().handlers), random_videos(1, 2)
    video[1, 0, :, 0, 0] = 255
    try:
        add_log_stream(stream)
        with serving(FailingModel()) as url, RewardClient(url) as client:
            client.reset([0], [0], [LIFT], frames_by_view(video[0]))
            with pytest.raises(ServiceError, match="the model failed: RuntimeError"):
                client.step([0], [0], [1], frames_by_view(video[1]))
            logging.getLogger("uvicorn.error").warning("first\nsecond \x1b[2J")
    finally:
        logging.captureWarnings(False)
        for handler in set(logging.getLogger().handlers) - set(handlers):
            logging.getLogger().removeHandler(handler)
    events = [json.loads(line) for line in stream.getvalue().splitlines()]
    assert "\x1b" not in stream.getvalue() and all(event["time"] > 0 for event in events)
    assert {"logger": "uvicorn.error", "level": "warning"}.items() <= events[-2].items(), events
    assert any("RuntimeError: the model broke" in event.get("traceback", "") for event in events)
    assert events[-1]["event"] == "shutdown" and events[-1]["num_accepted"] == 2


def test_one_client_cannot_take_all_episodes() -> None:
    config = ServeConfig(port=0, limits=ServeLimits(max_sessions=8))
    frames = frames_by_view(random_videos(8, 1)[0])

    def reset(client: RewardClient, num_envs: int) -> None:
        first = {name: pixels[:num_envs] for name, pixels in frames.items()}
        client.reset(range(num_envs), [0] * num_envs, [LIFT] * num_envs, first)

    with serving(HashModel(), config=config) as url:
        greedy, other, third = (RewardClient(url, retry_timeout_s=0.1) for _ in range(3))
        with pytest.raises(ServiceUnavailableError, match="4 episodes of this client are active already"):
            reset(greedy, 5)
        reset(greedy, 4)
        reset(other, 3)
        with pytest.raises(ServiceUnavailableError, match="8 episodes are active already"):
            reset(third, 2)
        reset(third, 1)
        reset(greedy, 4)


def test_api_key_is_required_and_never_sent_without_tls() -> None:
    video = random_videos(1, 1)
    with serving(HashModel(), api_key="secret") as url:
        for headers in ({}, {"x-api-key": "sec"}, {"authorization": "Bearer secret!"}):
            for path in ("/", "/v1/reset", "/v1/metadata", "/v2/models/reward", "/metrics", "/nowhere"):
                assert httpx.post(f"{url}{path}", headers=headers).status_code == 401
        assert httpx.get(f"{url}/v2/health/ready").json() == {"ready": True}
        assert httpx.get(f"{url}/metrics", auth=("anybody", "secret")).status_code == 200
        with RewardClient(url, api_key="secret") as client:
            assert client.reset([0], [0], [LIFT], frames_by_view(video[0])).valid.all()
    with pytest.raises(ValueError, match="a key is not sent without TLS"):
        RewardClient("http://rewards.example", api_key="secret")


def test_cross_origin_requests_are_rejected() -> None:
    with serving(HashModel()) as url:
        assert httpx.get(f"{url}/v1/metadata", headers={"origin": "https://evil.example"}).status_code == 403
        assert httpx.get(f"{url}/v1/metadata", headers={"host": "evil.example"}).status_code == 403
        assert httpx.get(f"{url}/v1/metadata", headers={"origin": url}).status_code == 200


def test_model_metadata_describes_the_model() -> None:
    handle = serve_model(HashModel())
    assert handle.metadata.supports_restore and handle.model.capabilities.predicts_success
    handle.executor.shutdown()
