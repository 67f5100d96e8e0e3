"""What a client is told is what the model says of its own episodes: whatever is lost, repeated, restarted or shared."""

from __future__ import annotations

import threading
import time
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import ClassVar

import httpx
import numpy as np
import pytest
from known_models import HashModel, digest_to_progress, initial_digest, next_digest, serve_model
from services import by_view, serving, videos

from embodied_rm.models.checkpoint import load_progress_net
from embodied_rm.models.judges.remote import RemoteRewardModel
from embodied_rm.models.scoring import score_episodes
from embodied_rm.paths import BUNDLED_CHECKPOINT
from embodied_rm.serve.client import episode_handles
from embodied_rm.serve.client.client_errors import (
    EpisodeLostError,
    OutOfOrderError,
    ServiceError,
    ServiceUnavailableError,
)
from embodied_rm.serve.client.reward_client import RewardClient
from embodied_rm.serve.service_config import ServeConfig, ServeLimits
from embodied_rm.types import Episode, Views

LIFT = "lift the red cube"


def expected(video: np.ndarray, instruction: str = LIFT) -> list[float]:
    """What `Hashing` says of a video [T, V, H, W, 3] after each frame but the first."""
    digest, said = initial_digest(instruction, video[0]), []
    for frames in video[1:]:
        digest = next_digest(digest, frames)
        said.append(float(digest_to_progress(np.array([digest]))[0]))
    return said


def test_what_the_service_says_is_what_the_model_says_here() -> None:
    net = load_progress_net(BUNDLED_CHECKPOINT)
    video = videos(3, 6, size=64, views=3)
    frames = dict(zip(net.config.views, np.moveaxis(video, 2, 0), strict=True))
    texts = [LIFT, "open the drawer; then lift the red cube", "press the button"]
    episodes = [
        Episode(name=f"e{row}", views={k: v[:, row] for k, v in frames.items()}, instruction=text, fps=10.0)
        for row, text in enumerate(texts)
    ]
    here = score_episodes(net, episodes)
    with serving(load_progress_net(BUNDLED_CHECKPOINT)) as url, RewardClient(url) as client:
        model = RemoteRewardModel(client)
        assert model.input_spec == net.input_spec and model.capabilities.predicts_success
        memory = model.reset(Views(names=net.config.views, frames=video[0]), texts)
        np.testing.assert_array_equal(memory.potential(), 0)
        for t in range(1, len(video)):
            said, memory = model.step(memory, Views(names=net.config.views, frames=video[t]))
            for name in ("progress", "valid", "subtask", "success", "uncertainty", "ood"):
                theirs = np.array([getattr(curve, name)[t] for curve in here])
                np.testing.assert_allclose(getattr(said, name), theirs, atol=1e-5, equal_nan=True, err_msg=name)


def test_every_environment_hears_of_its_own_video() -> None:
    video = videos(5, 7)
    with serving(HashModel()) as url, RewardClient(url) as client:
        said, now = episode_handles.reset_episodes(
            client, range(5), [0] * 5, [LIFT] * 5, by_view(video[0]), keep_state=False
        )
        np.testing.assert_array_equal(said.progress, 0)
        assert said.valid.all() and np.isnan(said.ood).all()
        for t in range(1, 7):
            said, now = episode_handles.step_episodes(client, now, by_view(video[t]))
            np.testing.assert_allclose(
                said.progress, [expected(video[: t + 1, row])[-1] for row in range(5)], atol=1e-7
            )


def test_a_request_that_comes_twice_is_answered_alike_and_judged_once() -> None:
    video, model = videos(2, 3), HashModel()
    with serving(model) as url, RewardClient(url) as client:
        client.reset([0, 1], [4, 9], [LIFT] * 2, by_view(video[0]))
        once = client.step([0, 1], [4, 9], [1, 1], by_view(video[1]))
        batches = len(model.batch_sizes)
        again = client.step([0, 1], [4, 9], [1, 1], by_view(video[1]))
        alone = client.step([1], [9], [1], by_view(video[1][1:]))
        assert len(model.batch_sizes) == batches
        np.testing.assert_array_equal(once.progress, again.progress)
        assert alone.progress[0] == once.progress[1]
        mixed = client.step([0], [4], [2], by_view(video[2][:1]))
        both = client.step([0, 1], [4, 9], [2, 2], by_view(video[2]))  # one of them known, the other new
        assert both.progress[0] == mixed.progress[0]
        np.testing.assert_allclose(both.progress, [expected(video[:, row])[-1] for row in range(2)], atol=1e-7)


def test_a_retry_that_overtakes_its_first_attempt_waits_for_it() -> None:
    video, model = videos(1, 2), HashModel()
    with serving(model) as url:
        clients = [RewardClient(url, client_id="r"), RewardClient(url, client_id="r")]
        clients[0].reset([0], [0], [LIFT], by_view(video[0]))
        model.batch_s, said = 0.3, []

        def ask(client: RewardClient) -> None:
            said.append(client.step([0], [0], [1], by_view(video[1])).progress[0])

        batches = len(model.batch_sizes)
        threads = [threading.Thread(target=ask, args=(client,)) for client in clients]
        for thread in threads:
            thread.start()
            time.sleep(0.05)
        for thread in threads:
            thread.join()
        assert said[0] == said[1] == pytest.approx(expected(video[:, 0])[0]) and len(model.batch_sizes) == batches + 1


@pytest.mark.parametrize(
    ("episode", "step", "message"),
    [
        (5, 2, "the next step of it is 1"),
        (5, 3, "the next step of it is 1"),
        (4, 1, "episode 5 of it has begun already"),
    ],
)
def test_a_step_out_of_turn_is_refused_and_changes_nothing(episode: int, step: int, message: str) -> None:
    video = videos(1, 3)
    with serving(HashModel()) as url, RewardClient(url) as client:
        client.reset([0], [5], [LIFT], by_view(video[0]))
        with pytest.raises(OutOfOrderError, match=message):
            client.step([0], [episode], [step], by_view(video[1]))
        with pytest.raises(OutOfOrderError, match="episode 5 of it has begun already"):
            client.reset([0], [4], [LIFT], by_view(video[0]))
        said = client.step([0], [5], [1], by_view(video[1]))
        assert said.progress[0] == pytest.approx(expected(video[:2, 0])[0])
        with pytest.raises(OutOfOrderError, match="judged already, of other frames"):
            client.step([0], [5], [1], by_view(video[2]))


def test_what_is_not_known_is_told_by_name_and_can_be_told_again() -> None:
    video = videos(3, 4)
    with serving(HashModel()) as url, RewardClient(url) as client:
        _, now = episode_handles.reset_episodes(
            client, range(3), [0] * 3, [LIFT] * 3, by_view(video[0]), keep_state=True
        )
        _, now = episode_handles.step_episodes(client, now, by_view(video[1]))
        client.end([0, 2], [0, 0])
        with pytest.raises(EpisodeLostError) as lost:
            client.step([0, 1, 2], [0] * 3, [2] * 3, by_view(video[2]))
        assert lost.value.env_ids == [0, 2] and lost.value.status == 410
        said, _ = episode_handles.step_episodes(
            client, now, by_view(video[2])
        )  # sends back what was remembered of both
        np.testing.assert_allclose(said.progress, [expected(video[:3, row])[-1] for row in range(3)], atol=1e-7)


def test_a_new_service_goes_on_where_the_old_one_was() -> None:
    video = videos(4, 5)
    with serving(HashModel()) as url, RewardClient(url) as client:
        _, now = episode_handles.reset_episodes(
            client, range(4), [0] * 4, [LIFT] * 4, by_view(video[0]), keep_state=True
        )
        _, now = episode_handles.step_episodes(client, now, by_view(video[1]))
        some, others = [now[0], now[3]], [now[1], now[2]]
        _, some = episode_handles.step_episodes(
            client, some, by_view(video[2][[0, 3]])
        )  # two are farther than the others
    with serving(HashModel()) as url, RewardClient(url) as client:
        _, others = episode_handles.step_episodes(client, others, by_view(video[2][[1, 2]]))
        said, _ = episode_handles.step_episodes(client, [some[0], others[0], others[1], some[1]], by_view(video[3]))
        np.testing.assert_allclose(said.progress, [expected(video[:4, row])[-1] for row in range(4)], atol=1e-7)


def test_one_of_several_services_that_stayed_behind_is_told() -> None:
    """A run that comes back to it, after others have answered for a while."""
    video, run = videos(3, 6), "mine"
    with (
        serving(HashModel()) as one,
        serving(HashModel()) as other,
        RewardClient(one, client_id=run) as here,
        RewardClient(other, client_id=run) as there,
    ):
        _, now = episode_handles.reset_episodes(here, range(3), [0] * 3, [LIFT] * 3, by_view(video[0]), keep_state=True)
        _, now = episode_handles.step_episodes(here, now, by_view(video[1]))
        for frames in video[2:5]:
            _, now = episode_handles.step_episodes(there, now, by_view(frames))
        said, _ = episode_handles.step_episodes(here, now, by_view(video[5]))
        np.testing.assert_allclose(said.progress, [expected(video[:, row])[-1] for row in range(3)], atol=1e-7)
        with pytest.raises(OutOfOrderError):  # and one that is farther is not taken back
            episode_handles.step_episodes(here, [track._replace(step=1) for track in now], by_view(video[2]))


class Balancer(BaseHTTPRequestHandler):
    """Answers what it is to answer next, and notes whose request it was."""

    answers: ClassVar[list[tuple[int, bytes]]] = []
    runs: ClassVar[list[str]] = []

    def do_GET(self) -> None:
        self.runs.append(self.headers["X-Session-Id"])
        status, body = self.answers.pop(0)
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


def test_what_stands_before_several_services_may_say_that_one_broke() -> None:
    """It says 500 in words of its own. A service that is broken says so itself, and is not asked again."""
    with HTTPServer(("127.0.0.1", 0), Balancer) as balancer:
        threading.Thread(target=balancer.serve_forever, daemon=True).start()
        with RewardClient(f"http://127.0.0.1:{balancer.server_port}", client_id="mine") as client:
            Balancer.answers += [(500, b"Internal Server Error"), (200, b'{"name": "reward"}')]
            assert client.get_metadata() == {"name": "reward"} and Balancer.runs == ["mine", "mine"]
            Balancer.answers += [(500, b'{"error": "a fault of ours", "code": "internal_error"}')]
            with pytest.raises(ServiceError, match="a fault of ours"):
                client.get_metadata()
        balancer.shutdown()


def test_memories_stay_what_they_were_and_can_be_stored() -> None:
    video = videos(3, 4)

    def shown(t: int) -> Views:
        return Views(names=("front", "wrist"), frames=video[t])

    with serving(HashModel()) as url, RewardClient(url) as client:
        model = RemoteRewardModel(client)
        begun = model.reset(shown(0), [LIFT] * 3)
        once, middle = model.step(begun, shown(1))
        model.step(middle, shown(2))
        other, _ = model.step(middle, shown(3))  # another future of the same past
        digest = [
            next_digest(next_digest(initial_digest(LIFT, video[0, r]), video[1, r]), video[3, r]) for r in range(3)
        ]
        np.testing.assert_allclose(other.progress, digest_to_progress(np.array(digest)), atol=1e-7)
        mixed = begun.put(np.array([1]), middle.take(np.array([1])))
        assert list(mixed.potential()) == [0, once.progress[1], 0]
        state = middle.state_dict()
    with serving(HashModel()) as url, RewardClient(url) as client:
        model = RemoteRewardModel(client)
        pattern = model.reset(shown(0), [LIFT] * 3)
        restored = pattern.from_state_dict(state)
        np.testing.assert_array_equal(restored.potential(), once.progress)
        said, _ = model.step(restored, shown(2))
        np.testing.assert_allclose(said.progress, [expected(video[:3, row])[-1] for row in range(3)], atol=1e-7)


def test_episodes_that_nobody_remembers_are_ended() -> None:
    video = videos(6, 2)
    views = Views(names=("front", "wrist"), frames=video[0])
    with serving(HashModel()) as url, RewardClient(url) as client:
        model = RemoteRewardModel(client)
        for _ in range(4):
            memory = model.reset(views, [LIFT] * 6)
        metrics = httpx.get(f"{url}/metrics").text
        assert "embodied_rm_active_sessions 12.0" in metrics  # those of now, and those that were there when it began
        assert len(memory) == 6


def test_two_clients_are_judged_together_and_do_not_mix() -> None:
    model, said = HashModel(), {}
    video = videos(8, 4)

    def play(half: int) -> None:
        rows = slice(4 * half, 4 * half + 4)
        with RewardClient(url) as client:
            _, now = episode_handles.reset_episodes(
                client, range(4), [0] * 4, [LIFT] * 4, by_view(video[0, rows]), keep_state=False
            )
            for t in range(1, 4):
                judged, now = episode_handles.step_episodes(client, now, by_view(video[t, rows]))
            said[half] = judged.progress

    with serving(model, config=ServeConfig(port=0, max_queue_delay_ms=100)) as url:
        threads = [threading.Thread(target=play, args=(half,)) for half in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    both = np.concatenate([said[0], said[1]])
    np.testing.assert_allclose(both, [expected(video[:, row])[-1] for row in range(8)], atol=1e-7)
    assert 8 in model.batch_sizes


class Sick(HashModel):
    """Says what is no number of the frames that begin with a black pixel, and fails at those that begin white."""

    def step(self, memory, views):
        said, after = super().step(memory, views)
        corner = views.frames[:, 0, 0, 0]
        if (corner == 255).all(axis=1).any():
            raise RuntimeError("the model broke")
        said.progress[(corner == 0).all(axis=1)] = np.nan
        return said, after


def test_a_prediction_that_is_no_number_is_not_sent_and_spoils_no_other() -> None:
    video = videos(4, 4)
    video[2, 1, 0, 0, 0] = 0
    with serving(Sick()) as url, RewardClient(url) as client:
        _, now = episode_handles.reset_episodes(
            client, range(4), [0] * 4, [LIFT] * 4, by_view(video[0]), keep_state=True
        )
        before, now = episode_handles.step_episodes(client, now, by_view(video[1]))
        said, now = episode_handles.step_episodes(client, now, by_view(video[2]))
        assert said.valid.tolist() == [True, False, True, True] and said.progress[1] == before.progress[1]
        after, _ = episode_handles.step_episodes(client, now, by_view(video[3]))
        assert after.progress[0] == pytest.approx(expected(video[:, 0])[-1])
        assert after.progress[1] == pytest.approx(expected(video[[0, 1, 3], 1])[-1])  # as if it had not been shown
        assert "embodied_rm_non_finite_outputs_total 1.0" in httpx.get(f"{url}/metrics").text


def test_a_model_that_fails_at_one_request_answers_those_beside_it() -> None:
    video, model = videos(2, 2), Sick()
    video[1, 1, 0, 0, 0] = 255
    said: dict[int, object] = {}

    def ask(row: int) -> None:
        with RewardClient(url, client_id=f"r{row}") as client:
            try:
                said[row] = client.step([0], [0], [1], by_view(video[1, row : row + 1])).progress[0]
            except ServiceError as fault:
                said[row] = fault.status

    with serving(model) as url:
        for row in range(2):
            with RewardClient(url, client_id=f"r{row}") as client:
                client.reset([0], [0], [LIFT], by_view(video[0, row : row + 1]))
        model.batch_s = 0.1
        threads = [threading.Thread(target=ask, args=(row,)) for row in (0, 1, 0)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert said == {0: pytest.approx(expected(video[:, 0])[0]), 1: 500}


def test_a_service_that_does_not_judge_as_it_did_answers_nobody() -> None:
    with serving(HashModel(), passed_self_test=False) as url, RewardClient(url, retry_timeout_s=0.2) as client:
        assert httpx.get(f"{url}/v2/health/ready").status_code == 503
        assert httpx.get(f"{url}/v2/health/live").status_code == 200
        with pytest.raises(ServiceUnavailableError, match="does not judge as it did"):
            client.reset([0], [0], [LIFT], by_view(videos(1, 1)[0]))


def test_an_outage_is_waited_for_and_then_told() -> None:
    started = time.monotonic()
    with (
        RewardClient("http://127.0.0.1:9", retry_timeout_s=0.5) as client,
        pytest.raises(ServiceUnavailableError, match=r"0\.5 s"),
    ):
        client.get_metadata()
    assert 0.2 < time.monotonic() - started < 5 and client.num_retries >= 2


def test_idle_episodes_are_forgotten_and_too_many_refused() -> None:
    config = ServeConfig(port=0, limits=ServeLimits(max_sessions=3, idle_timeout_s=0.3))
    video = videos(3, 2)
    with serving(HashModel(), config=config) as url, RewardClient(url, retry_timeout_s=0.1) as client:
        client.reset([0, 1, 2], [0] * 3, [LIFT] * 3, by_view(video[0]))
        with pytest.raises(ServiceUnavailableError, match="3 episodes are under way already"):
            client.reset([3], [0], [LIFT], by_view(video[0, :1]))
        time.sleep(0.4)
        client.reset([3], [0], [LIFT], by_view(video[0, :1]))
        with pytest.raises(EpisodeLostError):
            client.step([0], [0], [1], by_view(video[1, :1]))


def test_a_key_is_needed_where_there_is_one_and_never_sent_in_the_clear() -> None:
    video = videos(1, 1)
    with serving(HashModel(), key="open sesame") as url:
        for headers in ({}, {"x-api-key": "open"}, {"authorization": "Bearer open sesame!"}):
            for path in ("/", "/v1/reset", "/v1/metadata", "/v2/models/reward", "/metrics", "/nowhere"):
                assert httpx.post(f"{url}{path}", headers=headers).status_code == 401
        assert httpx.get(f"{url}/v2/health/ready").json() == {"ready": True}
        assert httpx.get(f"{url}/metrics", auth=("anybody", "open sesame")).status_code == 200
        with RewardClient(url, api_key="open sesame") as client:
            assert client.reset([0], [0], [LIFT], by_view(video[0])).valid.all()
    with pytest.raises(ValueError, match="a key is not sent in the clear"):
        RewardClient("http://rewards.example", api_key="open sesame")


def test_pages_of_strangers_may_not_ask() -> None:
    with serving(HashModel()) as url:
        assert httpx.get(f"{url}/v1/metadata", headers={"origin": "https://evil.example"}).status_code == 403
        assert httpx.get(f"{url}/v1/metadata", headers={"host": "evil.example"}).status_code == 403
        assert httpx.get(f"{url}/v1/metadata", headers={"origin": url}).status_code == 200


def test_a_served_model_opens_like_any_judge() -> None:
    served = serve_model(HashModel())
    assert served.metadata.supports_restore and served.model.capabilities.predicts_success
    served.executor.shutdown()
