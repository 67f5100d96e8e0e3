"""A judge behind an endpoint: a tiny model answers over HTTP, and a fifth of the requests fails."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
import tiny_vlm
from judge_server import INJECTED_FAILURES, Endpoint, serving
from sprites import episode

from embodied_rm.cli.main import main
from embodied_rm.data.lerobot.write import DatasetWriter
from embodied_rm.errors import UserError
from embodied_rm.models.judges import endpoint as module
from embodied_rm.models.judges.chat import FAILURES, Query
from embodied_rm.models.judges.endpoint import EndpointChat, EndpointConfig
from embodied_rm.models.judges.local import LocalChat
from embodied_rm.models.judges.questions import LOGPROB_QUESTIONS, ProgressQuestion
from embodied_rm.models.judges.vlm_judge import VlmJudge
from embodied_rm.models.scoring import score_episodes

ANSWER = "<progress>40%</progress>"
EXPECTED_FAILURES = {
    "500": "server error",
    "429": "overloaded",
    "garbage": "malformed",
    "not json": "malformed",
    "slow": "timeout",
    "hang up": "unreachable",
}
"""Injected failure -> reported failure, if it occurs at every attempt."""


@pytest.fixture(scope="module")
def chat(tmp_path_factory: pytest.TempPathFactory) -> LocalChat:
    return LocalChat(tiny_vlm.save_model(tmp_path_factory.mktemp("vlm"), answer=ANSWER))


@pytest.fixture(autouse=True)
def short_backoff(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "INITIAL_BACKOFF_S", 0.01)


def open_chat(endpoint: Endpoint, **kwargs: object) -> EndpointChat:
    settings = {"url": endpoint.url, "model": "tiny", "timeout_s": 20.0, **kwargs}
    return EndpointChat(EndpointConfig(**settings))  # type: ignore[arg-type]


def test_endpoint_gives_the_scores_of_the_local_model(chat: LocalChat) -> None:
    video = episode(0, length=6)
    with serving(chat) as endpoint:
        for question in (ProgressQuestion(), LOGPROB_QUESTIONS["completion"]):
            (remote,) = score_episodes(VlmJudge(open_chat(endpoint), question), [video])
            (local,) = score_episodes(VlmJudge(chat, question), [video])
            assert remote.valid.all() and remote.progress == pytest.approx(local.progress, abs=1e-5)


def test_queries_are_sent_in_parallel_and_answered_in_order(chat: LocalChat) -> None:
    rng = np.random.default_rng(0)
    queries = [Query(parts=(rng.integers(0, 255, (16, 16, 3), np.uint8), f"number {i}")) for i in range(12)]
    with serving(chat) as endpoint:
        answers = open_chat(endpoint, concurrency=4).ask(queries)
        assert 1 < endpoint.max_concurrent <= 4
    assert [a.text for a in answers] == [b.text for b in chat.ask(queries)]


@pytest.mark.parametrize("failure", sorted(EXPECTED_FAILURES))
def test_failed_attempts_are_repeated_and_reported(chat: LocalChat, failure: str) -> None:
    query = Query(parts=("How far?",))
    with serving(chat, lambda digest, attempt: failure if attempt < 2 else None) as endpoint:
        (answer,) = open_chat(endpoint, timeout_s=2.0, max_attempts=3).ask([query])
        assert answer.failure is None and answer.text is not None
        (answer,) = open_chat(endpoint, timeout_s=2.0, max_attempts=1).ask([Query(parts=("And now?",))])
        assert answer.failure == EXPECTED_FAILURES[failure] and answer.failure in FAILURES
        assert sorted(map(len, endpoint.outcomes.values())) == [1, 3]


def test_score_reports_the_failures_of_the_endpoint(chat: LocalChat, tmp_path: Path) -> None:
    def inject_failure(digest: str, attempt: int) -> str | None:
        rng = np.random.default_rng([int(digest[:8], 16), attempt])
        return str(rng.choice(INJECTED_FAILURES)) if rng.random() < 0.2 else None

    with DatasetWriter(tmp_path / "videos") as writer:
        for number in range(4):
            video = episode(number)
            for frames in video.views.values():  # make all frames, and so all queries, different
                frames[:, :12, :12] = (60 * number + 2 * np.arange(len(frames)))[:, None, None, None]
            writer.add(video)
    with serving(chat, inject_failure) as endpoint:
        words = f"data={tmp_path}/videos out={tmp_path}/scored judge=question judge.url={endpoint.url} judge.model=tiny"
        code = main(
            ["score", *words.split(), "judge.timeout_s=2", "judge.max_attempts=2", "videos=false", "plots=false"]
        )
    assert code == 0
    metrics = json.loads((tmp_path / "scored" / "metrics.json").read_text())["score"]
    final = Counter(outcomes[-1] for outcomes in endpoint.outcomes.values())
    attempts = sum(map(len, endpoint.outcomes.values()))
    failed = sum(outcome != "fine" for outcomes in endpoint.outcomes.values() for outcome in outcomes)
    assert 0.1 < failed / attempts < 0.3 and final["nonsense"] and set(final) - {"fine", "nonsense"}, (
        "not enough failures"
    )
    expected = Counter({"unparsable": final.pop("nonsense")})
    for failure, count in final.items():
        if failure != "fine":
            expected[EXPECTED_FAILURES[failure]] += count
    assert {k: v for k, v in metrics.items() if k.startswith("invalid: ")} == {
        f"invalid: {reason}": count for reason, count in expected.items()
    }
    assert metrics["invalid"] == sum(expected.values())
    assert metrics["frames"] - metrics["episodes"] == len(endpoint.outcomes), "one query per frame after the first"


def test_api_key_is_sent_and_not_in_the_config(chat: LocalChat, monkeypatch: pytest.MonkeyPatch) -> None:
    with serving(chat) as endpoint:
        with pytest.raises(UserError, match="environment variable JUDGE_KEY is not set"):
            open_chat(endpoint, api_key_env="JUDGE_KEY")
        monkeypatch.setenv("JUDGE_KEY", "secret")
        chat_with_key = open_chat(endpoint, api_key_env="JUDGE_KEY")
        chat_with_key.ask([Query(parts=("How far?",))])
        assert endpoint.keys == {"Bearer secret"} and "secret" not in repr(chat_with_key.config)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"url": "file:///etc/passwd"}, "url must be http"),
        ({"url": "http://me:word@host/v1"}, "without a name and password"),
        ({"url": "http://example.org/v1", "api_key_env": "JUDGE_KEY"}, "an API key is not sent unencrypted"),
        ({"timeout_s": 0}, "timeout_s must be > 0"),
    ],
)
def test_invalid_config_is_rejected(change: dict[str, object], message: str) -> None:
    with pytest.raises(UserError, match=message):
        EndpointConfig(**{"url": "http://127.0.0.1:1/v1", "model": "m", **change})  # type: ignore[arg-type]


def test_unknown_model_raises_with_the_message_of_the_server(chat: LocalChat) -> None:
    with serving(chat) as endpoint, pytest.raises(UserError, match=r"rejected the request \(404\): .*no such model"):
        open_chat(endpoint, model="huge").ask([Query(parts=("How far?",))])


def test_shuffled_question_works_with_score_but_not_with_audit(
    chat: LocalChat, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with DatasetWriter(tmp_path / "videos") as writer:
        writer.add(episode(0, length=8))
    with serving(chat) as endpoint:
        judge_args = ["judge=question", "judge.question=shuffled", f"judge.url={endpoint.url}", "judge.model=tiny"]
        assert main(["score", f"data={tmp_path}/videos", f"out={tmp_path}/scored", "videos=false", *judge_args]) == 0
        assert len(endpoint.outcomes) == 1, "one query per video"
        assert main(["audit", f"data={tmp_path}/videos", f"out={tmp_path}/audited", *judge_args]) == 2
    assert "needs the complete video" in capsys.readouterr().err
    metrics = json.loads((tmp_path / "scored" / "metrics.json").read_text())["score"]
    assert metrics["invalid"] == metrics["invalid: unparsable"] == 7, "the tiny model knows one answer only"
