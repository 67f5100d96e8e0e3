"""A judge behind an endpoint: a real tiny model answers over HTTP, and a fifth of what it is asked goes wrong."""

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

SAYS = "<progress>40%</progress>"
TOLD = {"500": "server error", "429": "overloaded", "garbage": "malformed", "not json": "malformed", "slow": "timeout"}
TOLD |= {"hang up": "unreachable"}
"""What each failure is called where no attempt goes better."""


@pytest.fixture(scope="module")
def chat(tmp_path_factory: pytest.TempPathFactory) -> LocalChat:
    return LocalChat(tiny_vlm.save_model(tmp_path_factory.mktemp("vlm"), answer=SAYS))


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "INITIAL_BACKOFF_S", 0.01)


def asked(endpoint: Endpoint, **kwargs: object) -> EndpointChat:
    given = {"url": endpoint.url, "model": "tiny", "timeout_s": 20.0, **kwargs}
    return EndpointChat(EndpointConfig(**given))  # type: ignore[arg-type]


def test_an_endpoint_answers_as_the_model_behind_it_does_here(chat: LocalChat) -> None:
    shown = episode(0, length=6)
    with serving(chat) as endpoint:
        for question in (ProgressQuestion(), LOGPROB_QUESTIONS["completion"]):
            (there,), (here,) = (score_episodes(VlmJudge(each, question), [shown]) for each in (asked(endpoint), chat))
            assert there.valid.all() and there.progress == pytest.approx(here.progress, abs=1e-5)


def test_questions_are_under_way_together_and_answered_in_their_order(chat: LocalChat) -> None:
    rng = np.random.default_rng(0)
    queries = [Query(parts=(rng.integers(0, 255, (16, 16, 3), np.uint8), f"number {i}")) for i in range(12)]
    with serving(chat) as endpoint:
        answers = asked(endpoint, concurrency=4).ask(queries)
        assert 1 < endpoint.most_at_once <= 4
    assert [a.text for a in answers] == [b.text for b in chat.ask(queries)]


@pytest.mark.parametrize("failure", sorted(TOLD))
def test_each_failure_is_tried_again_and_told_apart_where_it_stays(chat: LocalChat, failure: str) -> None:
    query = Query(parts=("How far?",))
    with serving(chat, lambda digest, attempt: failure if attempt < 2 else None) as endpoint:
        (answer,) = asked(endpoint, timeout_s=2.0, max_attempts=3).ask([query])
        assert answer.failure is None and answer.text is not None
        (answer,) = asked(endpoint, timeout_s=2.0, max_attempts=1).ask([Query(parts=("And now?",))])
        assert answer.failure == TOLD[failure] and answer.failure in FAILURES
        assert sorted(map(len, endpoint.outcomes.values())) == [1, 3]


def test_a_corpus_is_scored_with_a_fifth_of_the_questions_failing(chat: LocalChat, tmp_path: Path) -> None:
    """Whatever fails, the run ends, and what is told of it is what the server knows."""

    def fails(digest: str, attempt: int) -> str | None:
        rng = np.random.default_rng([int(digest[:8], 16), attempt])
        return str(rng.choice(INJECTED_FAILURES)) if rng.random() < 0.2 else None

    with DatasetWriter(tmp_path / "videos") as writer:
        for number in range(4):
            shown = episode(number)
            for frames in shown.views.values():  # no frame is like another, so that no question is
                frames[:, :12, :12] = (60 * number + 2 * np.arange(len(frames)))[:, None, None, None]
            writer.add(shown)
    with serving(chat, fails) as endpoint:
        words = f"data={tmp_path}/videos out={tmp_path}/scored judge=question judge.url={endpoint.url} judge.model=tiny"
        code = main(["score", *words.split(), "judge.timeout_s=2", "judge.max_attempts=2", "videos=false", "plots=false"])
    assert code == 0
    numbers = json.loads((tmp_path / "scored" / "metrics.json").read_text())["score"]
    last = Counter(outcomes[-1] for outcomes in endpoint.outcomes.values())
    attempts = sum(map(len, endpoint.outcomes.values()))
    failed = sum(outcome != "fine" for outcomes in endpoint.outcomes.values() for outcome in outcomes)
    assert 0.1 < failed / attempts < 0.3 and last["nonsense"] and set(last) - {"fine", "nonsense"}, "it did fail"
    expected = Counter({"unparsable": last.pop("nonsense")})
    for failure, count in last.items():
        if failure != "fine":
            expected[TOLD[failure]] += count
    assert {k: v for k, v in numbers.items() if k.startswith("invalid: ")} == {
        f"invalid: {why}": count for why, count in expected.items()
    }
    assert numbers["invalid"] == sum(expected.values())
    assert numbers["frames"] - numbers["episodes"] == len(endpoint.outcomes), "a question a frame, but the first ones"


def test_a_key_is_sent_and_kept_out_of_everything_else(chat: LocalChat, monkeypatch: pytest.MonkeyPatch) -> None:
    with serving(chat) as endpoint:
        with pytest.raises(UserError, match="environment variable JUDGE_KEY is not set"):
            asked(endpoint, api_key_env="JUDGE_KEY")
        monkeypatch.setenv("JUDGE_KEY", "secret")
        there = asked(endpoint, api_key_env="JUDGE_KEY")
        there.ask([Query(parts=("How far?",))])
        assert endpoint.keys == {"Bearer secret"} and "secret" not in repr(there.config)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"url": "file:///etc/passwd"}, "url must be http"),
        ({"url": "http://me:word@host/v1"}, "without a name and password"),
        ({"url": "http://example.org/v1", "api_key_env": "JUDGE_KEY"}, "a key is not sent in the clear"),
        ({"timeout_s": 0}, "timeout_s must be > 0"),
    ],
)
def test_what_makes_no_sense_is_refused_before_anything_is_sent(change: dict[str, object], message: str) -> None:
    with pytest.raises(UserError, match=message):
        EndpointConfig(**{"url": "http://127.0.0.1:1/v1", "model": "m", **change})  # type: ignore[arg-type]


def test_a_model_that_is_not_there_ends_the_run_with_what_the_server_says(chat: LocalChat) -> None:
    with serving(chat) as endpoint, pytest.raises(UserError, match=r"refuses \(404\): .*no such model"):
        asked(endpoint, model="huge").ask([Query(parts=("How far?",))])


def test_a_question_about_whole_videos_is_scored_and_pays_nobody(
    chat: LocalChat, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with DatasetWriter(tmp_path / "videos") as writer:
        writer.add(episode(0, length=8))
    with serving(chat) as endpoint:
        asking = ["judge=question", "judge.question=shuffled", f"judge.url={endpoint.url}", "judge.model=tiny"]
        assert main(["score", f"data={tmp_path}/videos", f"out={tmp_path}/scored", "videos=false", *asking]) == 0
        assert len(endpoint.outcomes) == 1, "one question a video"
        assert main(["audit", f"data={tmp_path}/videos", f"out={tmp_path}/audited", *asking]) == 2
    assert "looks at the whole video" in capsys.readouterr().err
    numbers = json.loads((tmp_path / "scored" / "metrics.json").read_text())["score"]
    assert numbers["invalid"] == numbers["invalid: unparsable"] == 7, "this model says one thing only"
