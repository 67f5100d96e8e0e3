"""A client gets the model's predictions for its own episodes, despite lost requests, retries, restarts and batching."""

from __future__ import annotations

import json
import threading
import time
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import ClassVar

import httpx
import numpy as np
import pytest
from known_models import HashModel, digest_to_progress, initial_digest, next_digest
from server_threads import serve_in_thread
from services import LIFT, expected_progress, frames_by_view, random_videos, serving

from embodied_rm.client import episode_handles
from embodied_rm.client.client_errors import (
    EpisodeLostError,
    OutOfOrderError,
    ServiceError,
)
from embodied_rm.client.reward_client import RewardClient
from embodied_rm.models.checkpoint import load_progress_net
from embodied_rm.models.judges.remote import RemoteRewardModel
from embodied_rm.models.reward_model import RewardState
from embodied_rm.models.scoring import score_episodes
from embodied_rm.paths import BUNDLED_CHECKPOINT
from embodied_rm.serve.service_config import ServeConfig
from embodied_rm.types import Episode, RewardOutput, Views


def test_service_matches_local_model() -> None:
    net = load_progress_net(BUNDLED_CHECKPOINT)
    video = random_videos(3, 6, size=64, num_views=3)
    frames = dict(zip(net.config.views, np.moveaxis(video, 2, 0), strict=True))
    texts = [LIFT, "open the drawer; then lift the red cube", "press the button"]
    episodes = [
        Episode(name=f"e{row}", views={k: v[:, row] for k, v in frames.items()}, instruction=text, fps=10.0)
        for row, text in enumerate(texts)
    ]
    local = score_episodes(net, episodes)
    with serving(load_progress_net(BUNDLED_CHECKPOINT)) as url, RewardClient(url) as client:
        model = RemoteRewardModel(client)
        assert model.input_spec == net.input_spec and model.capabilities.predicts_success
        state = model.reset(Views(names=net.config.views, frames=video[0]), texts)
        np.testing.assert_array_equal(state.potential(), 0)
        for t in range(1, len(video)):
            prediction, state = model.step(state, Views(names=net.config.views, frames=video[t]))
            for name in ("progress", "valid", "subtask", "success", "uncertainty", "ood"):
                expected = np.array([getattr(curve, name)[t] for curve in local])
                np.testing.assert_allclose(getattr(prediction, name), expected, atol=1e-5, equal_nan=True, err_msg=name)


@pytest.mark.parametrize("threshold", [None, 0.7])
def test_the_success_threshold_of_the_model_is_that_of_its_client(threshold: float | None) -> None:
    with serving(HashModel(), success_threshold=threshold) as url, RewardClient(url) as client:
        assert RemoteRewardModel(client).capabilities.success_threshold == threshold


class StartsHalfway(HashModel):
    """Has a progress of its own at the first frame."""

    def first_output(self, state: RewardState) -> RewardOutput:
        half, zero = np.full((2, len(state)), 0.5, np.float32), np.zeros(len(state), np.float32)
        valid, subtask = np.ones(len(state), bool), np.zeros(len(state), np.int64)
        return RewardOutput(progress=half[0], valid=valid, subtask=subtask, success=zero, uncertainty=half[1])


def test_the_first_prediction_is_that_of_a_model_that_scores_first_frames() -> None:
    with serving(StartsHalfway()) as url, RewardClient(url) as client:
        prediction = client.reset([0, 1], [0, 0], [LIFT] * 2, frames_by_view(random_videos(2, 1)[0]))
    np.testing.assert_array_equal(prediction.progress, 0.5)
    np.testing.assert_array_equal(prediction.uncertainty, 0.5)


def test_every_environment_gets_its_own_progress() -> None:
    video = random_videos(5, 7)
    with serving(HashModel()) as url, RewardClient(url) as client:
        prediction, handles = episode_handles.reset_episodes(
            client, range(5), [0] * 5, [LIFT] * 5, frames_by_view(video[0]), keep_state=False
        )
        np.testing.assert_array_equal(prediction.progress, 0)
        assert prediction.valid.all() and np.isnan(prediction.ood).all()
        for t in range(1, 7):
            prediction, handles = episode_handles.step_episodes(client, handles, frames_by_view(video[t]))
            np.testing.assert_allclose(
                prediction.progress, [expected_progress(video[: t + 1, row])[-1] for row in range(5)], atol=1e-7
            )


def test_retry_returns_the_same_result_and_is_scored_once() -> None:
    video, model = random_videos(2, 3), HashModel()
    with serving(model) as url, RewardClient(url) as client:
        client.reset([0, 1], [4, 9], [LIFT] * 2, frames_by_view(video[0]))
        once = client.step([0, 1], [4, 9], [1, 1], frames_by_view(video[1]))
        batches = len(model.batch_sizes)
        again = client.step([0, 1], [4, 9], [1, 1], frames_by_view(video[1]))
        alone = client.step([1], [9], [1], frames_by_view(video[1][1:]))
        assert len(model.batch_sizes) == batches
        np.testing.assert_array_equal(once.progress, again.progress)
        assert alone.progress[0] == once.progress[1]
        mixed = client.step([0], [4], [2], frames_by_view(video[2][:1]))
        both = client.step([0, 1], [4, 9], [2, 2], frames_by_view(video[2]))  # one row is cached, the other new
        assert both.progress[0] == mixed.progress[0]
        np.testing.assert_allclose(both.progress, [expected_progress(video[:, row])[-1] for row in range(2)], atol=1e-7)


def test_concurrent_retry_waits_for_the_first_attempt() -> None:
    video, model = random_videos(1, 2), HashModel()
    with serving(model) as url:
        clients = [RewardClient(url, client_id="r"), RewardClient(url, client_id="r")]
        clients[0].reset([0], [0], [LIFT], frames_by_view(video[0]))
        model.batch_s = 0.3
        progress: list[float] = []

        def ask(client: RewardClient) -> None:
            progress.append(client.step([0], [0], [1], frames_by_view(video[1])).progress[0])

        batches = len(model.batch_sizes)
        threads = [threading.Thread(target=ask, args=(client,)) for client in clients]
        for thread in threads:
            thread.start()
            time.sleep(0.05)
        for thread in threads:
            thread.join()
        assert (
            progress[0] == progress[1] == pytest.approx(expected_progress(video[:, 0])[0])
            and len(model.batch_sizes) == batches + 1
        )


@pytest.mark.parametrize(
    ("episode", "step", "message"),
    [
        (5, 2, "the next step is 1"),
        (5, 3, "the next step is 1"),
        (4, 1, "episode 5 has already started"),
    ],
)
def test_out_of_order_step_is_rejected_and_changes_nothing(episode: int, step: int, message: str) -> None:
    video = random_videos(1, 3)
    with serving(HashModel()) as url, RewardClient(url) as client:
        client.reset([0], [5], [LIFT], frames_by_view(video[0]))
        with pytest.raises(OutOfOrderError, match=message):
            client.step([0], [episode], [step], frames_by_view(video[1]))
        with pytest.raises(OutOfOrderError, match="episode 5 has already started"):
            client.reset([0], [4], [LIFT], frames_by_view(video[0]))
        prediction = client.step([0], [5], [1], frames_by_view(video[1]))
        assert prediction.progress[0] == pytest.approx(expected_progress(video[:2, 0])[0])
        with pytest.raises(OutOfOrderError, match="already scored with other frames"):
            client.step([0], [5], [1], frames_by_view(video[2]))


def test_lost_episodes_are_named_and_restored() -> None:
    video = random_videos(3, 4)
    with serving(HashModel()) as url, RewardClient(url) as client:
        _, handles = episode_handles.reset_episodes(
            client, range(3), [0] * 3, [LIFT] * 3, frames_by_view(video[0]), keep_state=True
        )
        _, handles = episode_handles.step_episodes(client, handles, frames_by_view(video[1]))
        client.end([0, 2], [0, 0])
        with pytest.raises(EpisodeLostError) as raised:
            client.step([0, 1, 2], [0] * 3, [2] * 3, frames_by_view(video[2]))
        assert raised.value.env_ids == [0, 2] and raised.value.status == 410
        prediction, _ = episode_handles.step_episodes(client, handles, frames_by_view(video[2]))  # restores both
        np.testing.assert_allclose(
            prediction.progress, [expected_progress(video[:3, row])[-1] for row in range(3)], atol=1e-7
        )


def test_restarted_service_continues_restored_episodes() -> None:
    video = random_videos(4, 5)
    with serving(HashModel()) as url, RewardClient(url) as client:
        _, handles = episode_handles.reset_episodes(
            client, range(4), [0] * 4, [LIFT] * 4, frames_by_view(video[0]), keep_state=True
        )
        _, handles = episode_handles.step_episodes(client, handles, frames_by_view(video[1]))
        advanced, others = [handles[0], handles[3]], [handles[1], handles[2]]
        _, advanced = episode_handles.step_episodes(
            client, advanced, frames_by_view(video[2][[0, 3]])
        )  # two are one step further
    with serving(HashModel()) as url, RewardClient(url) as client:
        _, others = episode_handles.step_episodes(client, others, frames_by_view(video[2][[1, 2]]))
        prediction, _ = episode_handles.step_episodes(
            client, [advanced[0], others[0], others[1], advanced[1]], frames_by_view(video[3])
        )
        np.testing.assert_allclose(
            prediction.progress, [expected_progress(video[:4, row])[-1] for row in range(4)], atol=1e-7
        )


def test_replica_at_an_earlier_step_is_restored() -> None:
    """A client returns to a replica after another one answered for a while."""
    video, client_id = random_videos(3, 6), "client"
    with (
        serving(HashModel()) as first_url,
        serving(HashModel()) as second_url,
        RewardClient(first_url, client_id=client_id) as first,
        RewardClient(second_url, client_id=client_id) as second,
    ):
        _, handles = episode_handles.reset_episodes(
            first, range(3), [0] * 3, [LIFT] * 3, frames_by_view(video[0]), keep_state=True
        )
        _, handles = episode_handles.step_episodes(first, handles, frames_by_view(video[1]))
        for frames in video[2:5]:
            _, handles = episode_handles.step_episodes(second, handles, frames_by_view(frames))
        prediction, _ = episode_handles.step_episodes(first, handles, frames_by_view(video[5]))
        np.testing.assert_allclose(
            prediction.progress, [expected_progress(video[:, row])[-1] for row in range(3)], atol=1e-7
        )
        with pytest.raises(OutOfOrderError):  # an episode is not restored to an earlier step
            episode_handles.step_episodes(
                first, [handle._replace(step=1) for handle in handles], frames_by_view(video[2])
            )


class FakeLoadBalancer(BaseHTTPRequestHandler):
    """Sends the prepared responses and records the client of each request."""

    responses: ClassVar[list[tuple[int, bytes]]] = []
    client_ids: ClassVar[list[str]] = []

    def do_GET(self) -> None:
        self.client_ids.append(self.headers["X-Session-Id"])
        status, body = self.responses.pop(0)
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


def test_error_500_is_retried_only_from_a_load_balancer() -> None:
    """A load balancer sends 500 without JSON. The service sends it with JSON, and that is not retried."""
    balancer = HTTPServer(("127.0.0.1", 0), FakeLoadBalancer)
    client = RewardClient(f"http://127.0.0.1:{balancer.server_port}", client_id="mine")
    with serve_in_thread(balancer), client:
        flags = {"predicts_success": True, "supports_restore": False}
        metadata = {"name": "reward", "parameters": {"views": None, "image_size": None, **flags}}
        FakeLoadBalancer.responses += [(500, b"Internal Server Error"), (200, json.dumps(metadata).encode())]
        assert client.get_metadata() == metadata and FakeLoadBalancer.client_ids == ["mine", "mine"]
        FakeLoadBalancer.responses += [(500, b'{"error": "the service failed", "code": "internal_error"}')]
        with pytest.raises(ServiceError, match="the service failed"):
            client.get_metadata()


def test_states_are_immutable_and_serializable() -> None:
    video = random_videos(3, 4)

    def views_at(t: int) -> Views:
        return Views(names=("front", "wrist"), frames=video[t])

    with serving(HashModel()) as url, RewardClient(url) as client:
        model = RemoteRewardModel(client)
        start = model.reset(views_at(0), [LIFT] * 3)
        once, middle = model.step(start, views_at(1))
        model.step(middle, views_at(2))
        other, _ = model.step(middle, views_at(3))  # a second continuation of the same state
        digest = [
            next_digest(next_digest(initial_digest(LIFT, video[0, r]), video[1, r]), video[3, r]) for r in range(3)
        ]
        np.testing.assert_allclose(other.progress, digest_to_progress(np.array(digest)), atol=1e-7)
        mixed = start.put(np.array([1]), middle.take(np.array([1])))
        assert list(mixed.potential()) == [0, once.progress[1], 0]
        state = middle.state_dict()
    with serving(HashModel()) as url, RewardClient(url) as client:
        model = RemoteRewardModel(client)
        example = model.reset(views_at(0), [LIFT] * 3)
        restored = example.from_state_dict(state)
        np.testing.assert_array_equal(restored.potential(), once.progress)
        prediction, _ = model.step(restored, views_at(2))
        np.testing.assert_allclose(
            prediction.progress, [expected_progress(video[:3, row])[-1] for row in range(3)], atol=1e-7
        )


def test_episodes_without_references_are_ended() -> None:
    video = random_videos(6, 2)
    views = Views(names=("front", "wrist"), frames=video[0])
    with serving(HashModel()) as url, RewardClient(url) as client:
        model = RemoteRewardModel(client)
        for _ in range(4):
            state = model.reset(views, [LIFT] * 6)
        metrics = httpx.get(f"{url}/metrics").text
        assert "embodied_rm_active_sessions 12.0" in metrics  # the current ones and the previous ones
        assert len(state) == 6


def test_clients_share_batches_without_mixing() -> None:
    model = HashModel()
    progress: dict[int, np.ndarray] = {}
    video = random_videos(8, 4)

    def play(half: int) -> None:
        rows = slice(4 * half, 4 * half + 4)
        with RewardClient(url) as client:
            _, handles = episode_handles.reset_episodes(
                client, range(4), [0] * 4, [LIFT] * 4, frames_by_view(video[0, rows]), keep_state=False
            )
            for t in range(1, 4):
                prediction, handles = episode_handles.step_episodes(client, handles, frames_by_view(video[t, rows]))
            progress[half] = prediction.progress

    with serving(model, config=ServeConfig(port=0, max_queue_delay_ms=100)) as url:
        threads = [threading.Thread(target=play, args=(half,)) for half in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    both = np.concatenate([progress[0], progress[1]])
    np.testing.assert_allclose(both, [expected_progress(video[:, row])[-1] for row in range(8)], atol=1e-7)
    assert 8 in model.batch_sizes
