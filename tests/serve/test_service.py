"""What a client is told is what the model says of its own episodes: whatever is lost, repeated, restarted or shared."""

from __future__ import annotations

import threading
import time
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import ClassVar

import httpx
import numpy as np
import pytest
from known_models import Hashing, first, following, served_by, share
from services import by_view, films, serving

from embodied_rm.cli.places import IN_THE_BOX
from embodied_rm.models.checkpoint import load_progress_net
from embodied_rm.models.fold import fold
from embodied_rm.models.judges.served import ServedModel
from embodied_rm.serve.client import tracks
from embodied_rm.serve.client.errors import LostError, OutageError, OutOfStepError, ServiceError
from embodied_rm.serve.client.reward_client import RewardClient
from embodied_rm.serve.config import Limits, ServeConfig
from embodied_rm.types import Episode, Views

LIFT = "lift the red cube"


def expected(film: np.ndarray, instruction: str = LIFT) -> list[float]:
    """What `Hashing` says of a film [T, V, H, W, 3] after each frame but the first."""
    digest, said = first(instruction, film[0]), []
    for frames in film[1:]:
        digest = following(digest, frames)
        said.append(float(share(np.array([digest]))[0]))
    return said


def test_what_the_service_says_is_what_the_model_says_here() -> None:
    net = load_progress_net(IN_THE_BOX)
    film = films(3, 6, size=64, views=3)
    frames = dict(zip(net.config.views, np.moveaxis(film, 2, 0), strict=True))
    texts = [LIFT, "open the drawer; then lift the red cube", "press the button"]
    episodes = [
        Episode(name=f"e{row}", views={k: v[:, row] for k, v in frames.items()}, instruction=text, fps=10.0)
        for row, text in enumerate(texts)
    ]
    here = fold(net, episodes)
    with serving(load_progress_net(IN_THE_BOX)) as url, RewardClient(url) as client:
        model = ServedModel(client)
        assert model.sight == net.sight and model.tells_success
        memory = model.begin(Views(names=net.config.views, frames=film[0]), texts)
        np.testing.assert_array_equal(memory.potential(), 0)
        for t in range(1, len(film)):
            said, memory = model.advance(memory, Views(names=net.config.views, frames=film[t]))
            for name in ("value", "valid", "stage", "success", "spread", "ood"):
                theirs = np.array([getattr(curve, name)[t] for curve in here])
                np.testing.assert_allclose(getattr(said, name), theirs, atol=1e-5, equal_nan=True, err_msg=name)


def test_every_environment_hears_of_its_own_film() -> None:
    film = films(5, 7)
    with serving(Hashing()) as url, RewardClient(url) as client:
        said, now = tracks.begin(client, range(5), [0] * 5, [LIFT] * 5, by_view(film[0]), keep=False)
        np.testing.assert_array_equal(said.value, 0)
        assert said.valid.all() and np.isnan(said.ood).all()
        for t in range(1, 7):
            said, now = tracks.advance(client, now, by_view(film[t]))
            np.testing.assert_allclose(said.value, [expected(film[: t + 1, row])[-1] for row in range(5)], atol=1e-7)


def test_a_request_that_comes_twice_is_answered_alike_and_judged_once() -> None:
    film, model = films(2, 3), Hashing()
    with serving(model) as url, RewardClient(url) as client:
        client.begin([0, 1], [4, 9], [LIFT] * 2, by_view(film[0]))
        once = client.advance([0, 1], [4, 9], [1, 1], by_view(film[1]))
        batches = len(model.batches)
        again = client.advance([0, 1], [4, 9], [1, 1], by_view(film[1]))
        alone = client.advance([1], [9], [1], by_view(film[1][1:]))
        assert len(model.batches) == batches
        np.testing.assert_array_equal(once.value, again.value)
        assert alone.value[0] == once.value[1]
        mixed = client.advance([0], [4], [2], by_view(film[2][:1]))
        both = client.advance([0, 1], [4, 9], [2, 2], by_view(film[2]))  # one of them known, the other new
        assert both.value[0] == mixed.value[0]
        np.testing.assert_allclose(both.value, [expected(film[:, row])[-1] for row in range(2)], atol=1e-7)


def test_a_retry_that_overtakes_its_first_attempt_waits_for_it() -> None:
    film, model = films(1, 2), Hashing()
    with serving(model) as url:
        clients = [RewardClient(url, run="r"), RewardClient(url, run="r")]
        clients[0].begin([0], [0], [LIFT], by_view(film[0]))
        model.pause, said = 0.3, []

        def ask(client: RewardClient) -> None:
            said.append(client.advance([0], [0], [1], by_view(film[1])).value[0])

        batches = len(model.batches)
        threads = [threading.Thread(target=ask, args=(client,)) for client in clients]
        for thread in threads:
            thread.start()
            time.sleep(0.05)
        for thread in threads:
            thread.join()
        assert said[0] == said[1] == pytest.approx(expected(film[:, 0])[0]) and len(model.batches) == batches + 1


@pytest.mark.parametrize(
    ("episode", "step", "message"),
    [
        (5, 2, "the next step of it is 1"),
        (5, 3, "the next step of it is 1"),
        (4, 1, "episode 5 of it has begun already"),
    ],
)
def test_a_step_out_of_turn_is_refused_and_changes_nothing(episode: int, step: int, message: str) -> None:
    film = films(1, 3)
    with serving(Hashing()) as url, RewardClient(url) as client:
        client.begin([0], [5], [LIFT], by_view(film[0]))
        with pytest.raises(OutOfStepError, match=message):
            client.advance([0], [episode], [step], by_view(film[1]))
        with pytest.raises(OutOfStepError, match="episode 5 of it has begun already"):
            client.begin([0], [4], [LIFT], by_view(film[0]))
        said = client.advance([0], [5], [1], by_view(film[1]))
        assert said.value[0] == pytest.approx(expected(film[:2, 0])[0])
        with pytest.raises(OutOfStepError, match="judged already, of other frames"):
            client.advance([0], [5], [1], by_view(film[2]))


def test_what_is_not_known_is_told_by_name_and_can_be_told_again() -> None:
    film = films(3, 4)
    with serving(Hashing()) as url, RewardClient(url) as client:
        _, now = tracks.begin(client, range(3), [0] * 3, [LIFT] * 3, by_view(film[0]), keep=True)
        _, now = tracks.advance(client, now, by_view(film[1]))
        client.end([0, 2], [0, 0])
        with pytest.raises(LostError) as lost:
            client.advance([0, 1, 2], [0] * 3, [2] * 3, by_view(film[2]))
        assert lost.value.env == [0, 2] and lost.value.status == 410
        said, _ = tracks.advance(client, now, by_view(film[2]))  # sends back what was remembered of both
        np.testing.assert_allclose(said.value, [expected(film[:3, row])[-1] for row in range(3)], atol=1e-7)


def test_a_new_service_goes_on_where_the_old_one_was() -> None:
    film = films(4, 5)
    with serving(Hashing()) as url, RewardClient(url) as client:
        _, now = tracks.begin(client, range(4), [0] * 4, [LIFT] * 4, by_view(film[0]), keep=True)
        _, now = tracks.advance(client, now, by_view(film[1]))
        some, others = [now[0], now[3]], [now[1], now[2]]
        _, some = tracks.advance(client, some, by_view(film[2][[0, 3]]))  # two are farther than the others
    with serving(Hashing()) as url, RewardClient(url) as client:
        _, others = tracks.advance(client, others, by_view(film[2][[1, 2]]))
        said, _ = tracks.advance(client, [some[0], others[0], others[1], some[1]], by_view(film[3]))
        np.testing.assert_allclose(said.value, [expected(film[:4, row])[-1] for row in range(4)], atol=1e-7)


def test_one_of_several_services_that_stayed_behind_is_told() -> None:
    """A run that comes back to it, after others have answered for a while."""
    film, run = films(3, 6), "mine"
    with (
        serving(Hashing()) as one,
        serving(Hashing()) as other,
        RewardClient(one, run=run) as here,
        RewardClient(other, run=run) as there,
    ):
        _, now = tracks.begin(here, range(3), [0] * 3, [LIFT] * 3, by_view(film[0]), keep=True)
        _, now = tracks.advance(here, now, by_view(film[1]))
        for frames in film[2:5]:
            _, now = tracks.advance(there, now, by_view(frames))
        said, _ = tracks.advance(here, now, by_view(film[5]))
        np.testing.assert_allclose(said.value, [expected(film[:, row])[-1] for row in range(3)], atol=1e-7)
        with pytest.raises(OutOfStepError):  # and one that is farther is not taken back
            tracks.advance(here, [track._replace(step=1) for track in now], by_view(film[2]))


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
        with RewardClient(f"http://127.0.0.1:{balancer.server_port}", run="mine") as client:
            Balancer.answers += [(500, b"Internal Server Error"), (200, b'{"name": "reward"}')]
            assert client.about() == {"name": "reward"} and Balancer.runs == ["mine", "mine"]
            Balancer.answers += [(500, b'{"error": "a fault of ours", "code": "broken"}')]
            with pytest.raises(ServiceError, match="a fault of ours"):
                client.about()
        balancer.shutdown()


def test_memories_stay_what_they_were_and_can_be_stored() -> None:
    film = films(3, 4)

    def shown(t: int) -> Views:
        return Views(names=("front", "wrist"), frames=film[t])

    with serving(Hashing()) as url, RewardClient(url) as client:
        model = ServedModel(client)
        begun = model.begin(shown(0), [LIFT] * 3)
        once, middle = model.advance(begun, shown(1))
        model.advance(middle, shown(2))
        other, _ = model.advance(middle, shown(3))  # another future of the same past
        digest = [following(following(first(LIFT, film[0, r]), film[1, r]), film[3, r]) for r in range(3)]
        np.testing.assert_allclose(other.value, share(np.array(digest)), atol=1e-7)
        mixed = begun.put(np.array([1]), middle.take(np.array([1])))
        assert list(mixed.potential()) == [0, once.value[1], 0]
        state = middle.state()
    with serving(Hashing()) as url, RewardClient(url) as client:
        model = ServedModel(client)
        pattern = model.begin(shown(0), [LIFT] * 3)
        restored = pattern.restored(state)
        np.testing.assert_array_equal(restored.potential(), once.value)
        said, _ = model.advance(restored, shown(2))
        np.testing.assert_allclose(said.value, [expected(film[:3, row])[-1] for row in range(3)], atol=1e-7)


def test_episodes_that_nobody_remembers_are_ended() -> None:
    film = films(6, 2)
    views = Views(names=("front", "wrist"), frames=film[0])
    with serving(Hashing()) as url, RewardClient(url) as client:
        model = ServedModel(client)
        for _ in range(4):
            memory = model.begin(views, [LIFT] * 6)
        metrics = httpx.get(f"{url}/metrics").text
        assert "embodied_rm_sessions 12.0" in metrics  # those of now, and those that were there when it began
        assert len(memory) == 6


def test_two_clients_are_judged_together_and_do_not_mix() -> None:
    model, said = Hashing(), {}
    film = films(8, 4)

    def play(half: int) -> None:
        rows = slice(4 * half, 4 * half + 4)
        with RewardClient(url) as client:
            _, now = tracks.begin(client, range(4), [0] * 4, [LIFT] * 4, by_view(film[0, rows]), keep=False)
            for t in range(1, 4):
                judged, now = tracks.advance(client, now, by_view(film[t, rows]))
            said[half] = judged.value

    with serving(model, config=ServeConfig(port=0, wait_ms=100)) as url:
        threads = [threading.Thread(target=play, args=(half,)) for half in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    both = np.concatenate([said[0], said[1]])
    np.testing.assert_allclose(both, [expected(film[:, row])[-1] for row in range(8)], atol=1e-7)
    assert 8 in model.batches


class Sick(Hashing):
    """Says what is no number of the frames that begin with a black pixel, and fails at those that begin white."""

    def advance(self, memory, views):
        said, after = super().advance(memory, views)
        corner = views.frames[:, 0, 0, 0]
        if (corner == 255).all(axis=1).any():
            raise RuntimeError("the model broke")
        said.value[(corner == 0).all(axis=1)] = np.nan
        return said, after


def test_a_judgement_that_is_no_number_is_not_sent_and_spoils_no_other() -> None:
    film = films(4, 4)
    film[2, 1, 0, 0, 0] = 0
    with serving(Sick()) as url, RewardClient(url) as client:
        _, now = tracks.begin(client, range(4), [0] * 4, [LIFT] * 4, by_view(film[0]), keep=True)
        before, now = tracks.advance(client, now, by_view(film[1]))
        said, now = tracks.advance(client, now, by_view(film[2]))
        assert said.valid.tolist() == [True, False, True, True] and said.value[1] == before.value[1]
        after, _ = tracks.advance(client, now, by_view(film[3]))
        assert after.value[0] == pytest.approx(expected(film[:, 0])[-1])
        assert after.value[1] == pytest.approx(expected(film[[0, 1, 3], 1])[-1])  # as if it had not been shown
        assert "embodied_rm_non_finite_rewards_total 1.0" in httpx.get(f"{url}/metrics").text


def test_a_model_that_fails_at_one_request_answers_those_beside_it() -> None:
    film, model = films(2, 2), Sick()
    film[1, 1, 0, 0, 0] = 255
    said: dict[int, object] = {}

    def ask(row: int) -> None:
        with RewardClient(url, run=f"r{row}") as client:
            try:
                said[row] = client.advance([0], [0], [1], by_view(film[1, row : row + 1])).value[0]
            except ServiceError as fault:
                said[row] = fault.status

    with serving(model) as url:
        for row in range(2):
            with RewardClient(url, run=f"r{row}") as client:
                client.begin([0], [0], [LIFT], by_view(film[0, row : row + 1]))
        model.pause = 0.1
        threads = [threading.Thread(target=ask, args=(row,)) for row in (0, 1, 0)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert said == {0: pytest.approx(expected(film[:, 0])[0]), 1: 500}


def test_a_service_that_does_not_judge_as_it_did_answers_nobody() -> None:
    with serving(Hashing(), sound=False) as url, RewardClient(url, patience=0.2) as client:
        assert httpx.get(f"{url}/v2/health/ready").status_code == 503
        assert httpx.get(f"{url}/v2/health/live").status_code == 200
        with pytest.raises(OutageError, match="does not judge as it did"):
            client.begin([0], [0], [LIFT], by_view(films(1, 1)[0]))


def test_an_outage_is_waited_for_and_then_told() -> None:
    started = time.monotonic()
    with RewardClient("http://127.0.0.1:9", patience=0.5) as client, pytest.raises(OutageError, match=r"0\.5 s"):
        client.about()
    assert 0.2 < time.monotonic() - started < 5 and client.retried >= 2


def test_idle_episodes_are_forgotten_and_too_many_refused() -> None:
    config = ServeConfig(port=0, limits=Limits(sessions=3, idle_s=0.3))
    film = films(3, 2)
    with serving(Hashing(), config=config) as url, RewardClient(url, patience=0.1) as client:
        client.begin([0, 1, 2], [0] * 3, [LIFT] * 3, by_view(film[0]))
        with pytest.raises(OutageError, match="3 episodes are under way already"):
            client.begin([3], [0], [LIFT], by_view(film[0, :1]))
        time.sleep(0.4)
        client.begin([3], [0], [LIFT], by_view(film[0, :1]))
        with pytest.raises(LostError):
            client.advance([0], [0], [1], by_view(film[1, :1]))


def test_a_key_is_needed_where_there_is_one_and_never_sent_in_the_clear() -> None:
    film = films(1, 1)
    with serving(Hashing(), key="open sesame") as url:
        for headers in ({}, {"x-api-key": "open"}, {"authorization": "Bearer open sesame!"}):
            for path in ("/", "/v1/begin", "/v1/about", "/v2/models/reward", "/metrics", "/nowhere"):
                assert httpx.post(f"{url}{path}", headers=headers).status_code == 401
        assert httpx.get(f"{url}/v2/health/ready").json() == {"ready": True}
        assert httpx.get(f"{url}/metrics", auth=("anybody", "open sesame")).status_code == 200
        with RewardClient(url, key="open sesame") as client:
            assert client.begin([0], [0], [LIFT], by_view(film[0])).valid.all()
    with pytest.raises(ValueError, match="a key is not sent in the clear"):
        RewardClient("http://rewards.example", key="open sesame")


def test_pages_of_strangers_may_not_ask() -> None:
    with serving(Hashing()) as url:
        assert httpx.get(f"{url}/v1/about", headers={"origin": "https://evil.example"}).status_code == 403
        assert httpx.get(f"{url}/v1/about", headers={"host": "evil.example"}).status_code == 403
        assert httpx.get(f"{url}/v1/about", headers={"origin": url}).status_code == 200


def test_a_served_model_opens_like_any_judge() -> None:
    served = served_by(Hashing())
    assert served.about.storable and served.model.tells_success
    served.thread.shutdown()
