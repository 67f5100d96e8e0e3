"""Endpoints that refuse parameters, single requests or answers, as hosted ones do."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Sequence
from typing import Any

import httpx
import pytest

from embodied_rm.errors import UserError
from embodied_rm.models.judges.chat import Answer, Query
from embodied_rm.models.judges.endpoint import EndpointChat, EndpointConfig

FINE = {"choices": [{"message": {"content": "<progress>40%</progress>"}}]}
MAX_TOKENS = "Unsupported parameter: 'max_tokens' is not supported. Use 'max_completion_tokens' instead."
TEMPERATURE = "Unsupported value: 'temperature' does not support 0 with this model. Only the default (1) is supported."
TOP_LOGPROBS = "Invalid value for 'top_logprobs': must be less than or equal to 5."
Reply = Callable[[dict[str, Any]], tuple[int, Any]]


def ask(reply: Reply, queries: Sequence[Query], **config: Any) -> tuple[list[Answer], list[dict[str, Any]]]:
    """Return the answers of an endpoint with a given behavior, and the bodies that it received."""
    bodies: list[dict[str, Any]] = []

    def handle(request: httpx.Request) -> httpx.Response:
        bodies.append(json.loads(request.content))
        status, body = reply(bodies[-1])
        return httpx.Response(status, json=body)

    chat = EndpointChat(EndpointConfig(url="http://localhost:1/v1", model="m", concurrency=1, **config))
    chat._client = httpx.Client(base_url="http://localhost:1/v1/", transport=httpx.MockTransport(handle))
    return chat.ask(queries), bodies


def error(message: str) -> dict[str, Any]:
    return {"error": {"message": message, "type": "invalid_request_error"}}


@pytest.mark.parametrize(
    "temperature",
    [
        TEMPERATURE,
        "`temperature` is deprecated for this model.",
        "invalid temperature: only 1 is allowed for this model",
    ],
)
def test_rejected_parameters_are_learned_from_the_first_rejections(temperature: str) -> None:
    def reply(body: dict[str, Any]) -> tuple[int, Any]:
        if "max_tokens" in body:
            return 400, error(MAX_TOKENS)
        return (400, error(temperature)) if "temperature" in body else (200, FINE)

    answers, bodies = ask(reply, [Query(parts=("How far?",), max_tokens=32)] * 3, reasoning_tokens=1000)
    assert all(answer.text == "<progress>40%</progress>" for answer in answers)
    assert len(bodies) == 5, "two rejections, and three answers"
    assert bodies[-1]["max_completion_tokens"] == 1032 and not {"temperature", "max_tokens"} & bodies[-1].keys()


@pytest.mark.parametrize(
    "message",
    [
        TOP_LOGPROBS,
        "top_logprobs must be between 0 and 5",
        "Requested sample logprobs of 20, which is greater than max allowed: 5",
    ],
)
def test_a_smaller_number_of_log_probabilities_is_learned(message: str) -> None:
    def reply(body: dict[str, Any]) -> tuple[int, Any]:
        if body["top_logprobs"] > 5:
            return 400, error(message)
        top = [{"token": "Yes", "logprob": math.log(0.5)}, {"token": " no", "logprob": math.log(0.25)}]
        return 200, {"choices": [{"message": {"content": "Yes"}, "logprobs": {"content": [{"top_logprobs": top}]}}]}

    (answer,), bodies = ask(reply, [Query(parts=("Done?",), choices=("yes", "no"))])
    assert answer.logprobs is not None and answer.logprobs["yes"] == pytest.approx(math.log(0.5))
    assert [body["top_logprobs"] for body in bodies] == [20, 5]


@pytest.mark.parametrize(
    ("listed", "expected"),
    [
        ({"Yes": 0.5, "No": 0.25}, {"yes": 0.5, "no": 0.25}),
        ({" yes": 0.25, "YES": 0.25, "yes.": 0.125, "No": 0.25}, {"yes": 0.625, "no": 0.25}),
        ({"NO": 0.5, "maybe": 0.5}, {"yes": 0.0, "no": 0.5}),
    ],
)
def test_spellings_of_a_choice_are_folded_as_in_written_answers(
    listed: dict[str, float], expected: dict[str, float]
) -> None:
    top = [{"token": token, "logprob": math.log(p)} for token, p in listed.items()]
    choice = {"message": {"content": "?"}, "logprobs": {"content": [{"top_logprobs": top}]}}
    (answer,), _ = ask(lambda body: (200, {"choices": [choice]}), [Query(parts=("?",), choices=("yes", "no"))])
    assert answer.logprobs is not None
    assert {name: math.exp(value) for name, value in answer.logprobs.items()} == pytest.approx(expected)


def token(*listed: tuple[str, float]) -> dict[str, Any]:
    """A generated token, which is the first of those listed with their log-probabilities."""
    return {"token": listed[0][0], "top_logprobs": [{"token": text, "logprob": value} for text, value in listed]}


THOUGHT = [token(("<think>", -1e-4), ("Yes", -12)), token(("The", -0.1), ("no", -2)), token(("</think>", -0.01))]
BREAK, NO = token(("\n\n", -1e-5), ("Yes", -14)), token(("No", -1e-3), ("Yes", -7))


@pytest.mark.parametrize(
    ("tokens", "share_of_yes"),
    [
        ([*THOUGHT, BREAK, NO], math.exp(-7 + 1e-3)),
        ([*THOUGHT[1:], NO], math.exp(-7 + 1e-3)),  # the prompt began the reasoning
        (THOUGHT[:2], None),
        ([{"token": "Yes", "top_logprobs": []}], None),
        ([token(("The", -1e-4), ("It", -9.4), ("yes", -9.5))], None),  # no may be nearly as probable
        ([token(("Yes", -0.3), ("Sure", -1.5))], None),
        ([token(("yes", -1e-4), ("Sure", -9.5))], 1),
    ],
)
def test_a_choice_is_read_after_the_reasoning_and_only_if_it_is_known(
    tokens: list[dict[str, Any]], share_of_yes: float | None
) -> None:
    choice = {"message": {"content": "?"}, "logprobs": {"content": tokens}}
    query = Query(parts=("?",), choices=("yes", "no"))
    (answer,), _ = ask(lambda body: (200, {"choices": [choice]}), [query], reasoning_tokens=64)
    if share_of_yes is None:
        assert answer.failure == "unlisted"
    else:
        assert answer.logprobs is not None
        p = {name: math.exp(value) for name, value in answer.logprobs.items()}
        assert p["yes"] / (p["yes"] + p["no"]) == pytest.approx(share_of_yes, rel=1e-2)


def test_a_text_of_several_parts_is_one_text() -> None:
    parts = [{"type": "thinking", "thinking": "no"}, {"type": "text", "text": "ye"}, {"type": "text", "text": "s"}]
    (answer,), _ = ask(lambda body: (200, {"choices": [{"message": {"content": parts}}]}), [Query(parts=("?",))])
    assert answer.text == "yes"


@pytest.mark.parametrize("status", [400, 403, 409, 413, 422, 424, 451])
def test_one_rejected_request_is_unscored_and_not_repeated(status: int) -> None:
    def reply(body: dict[str, Any]) -> tuple[int, Any]:
        too_large = "long" in body["messages"][0]["content"][0]["text"]
        return (status, error("maximum context length is 4096 tokens, you passed 9000")) if too_large else (200, FINE)

    answers, bodies = ask(reply, [Query(parts=(text,)) for text in ("short", "long", "short")])
    assert [answer.failure for answer in answers] == [None, "rejected", None] and len(bodies) == 3


def test_a_moderated_first_request_does_not_end_the_run() -> None:
    def reply(body: dict[str, Any]) -> tuple[int, Any]:
        is_flagged = "knife" in body["messages"][0]["content"][0]["text"]
        return (403, error("requires moderation: your input was flagged")) if is_flagged else (200, FINE)

    answers, _ = ask(reply, [Query(parts=(text,)) for text in ("knife", "cube")])
    assert [answer.failure for answer in answers] == ["rejected", None]


@pytest.mark.parametrize(
    "choice",
    [
        {"finish_reason": "content_filter", "message": {"content": None}},
        {"finish_reason": "stop", "message": {"content": None, "refusal": "I cannot help with that."}},
    ],
)
def test_a_withheld_answer_is_unscored_and_not_repeated(choice: dict[str, Any]) -> None:
    (answer,), bodies = ask(lambda body: (200, {"choices": [choice]}), [Query(parts=("?",))])
    assert answer.failure == "rejected" and len(bodies) == 1


def test_an_answer_that_reasoning_left_no_tokens_for_has_no_value() -> None:
    choice = {"finish_reason": "length", "message": {"content": None}}
    (answer,), _ = ask(lambda body: (200, {"choices": [choice]}), [Query(parts=("?",))])
    assert answer.failure is None and answer.text == ""


@pytest.mark.parametrize(
    ("status", "message"), [(401, "invalid key"), (403, "no access"), (404, "no such model"), (400, "no images")]
)
def test_an_endpoint_that_answers_nothing_ends_the_run(status: int, message: str) -> None:
    with pytest.raises(UserError, match=rf"rejected the request \({status}\): .*{message}"):
        ask(lambda body: (status, error(message)), [Query(parts=("?",))] * 20)


def test_a_negative_number_of_reasoning_tokens_is_refused() -> None:
    with pytest.raises(UserError, match="reasoning_tokens must be >= 0, got -1"):
        EndpointConfig(url="http://localhost:1/v1", model="m", reasoning_tokens=-1)


@pytest.mark.parametrize(
    "message",
    [
        "top_logprobs" * 40_000,
        "top_logprobs at most " * 20_000,
        "top_logprobs at most " + "9" * 5000,
        "logprobs of 1" * 20_000 + "max" * 20_000,
    ],
)
def test_a_hostile_refusal_is_read_in_bounded_time(message: str) -> None:
    answered = {"choices": [{"message": {"content": "yes"}, "logprobs": {"content": [token(("yes", -0.1))]}}]}
    replies = iter([(200, answered), (400, error(message))])
    answers, bodies = ask(lambda body: next(replies), [Query(parts=("?",), choices=("yes", "no"))] * 2)
    assert answers[1].failure == "rejected" and len(bodies) == 2


@pytest.mark.parametrize("charset", ["zlib", "utf-16", "no such codec"])
@pytest.mark.parametrize("status", [400, 403, 404])
def test_the_charset_of_a_refusal_is_not_used(status: int, charset: str) -> None:
    headers = {"Content-Type": f"text/plain; charset={charset}"}

    def handle(request: httpx.Request) -> httpx.Response:
        return httpx.Response(status, headers=headers, content=b"no such \xff model")

    chat = EndpointChat(EndpointConfig(url="http://localhost:1/v1", model="m", concurrency=1))
    chat._client = httpx.Client(base_url="http://localhost:1/v1/", transport=httpx.MockTransport(handle))
    with pytest.raises(UserError, match="no such \ufffd model"):
        chat.ask([Query(parts=("?",))] * 20)


def test_a_log_probability_beyond_all_floats_is_malformed() -> None:
    choice = {"message": {"content": "?"}, "logprobs": {"content": [token(("yes", -(10**400)))]}}  # type: ignore[arg-type]
    (answer,), _ = ask(
        lambda body: (200, {"choices": [choice]}), [Query(parts=("?",), choices=("yes", "no"))], max_attempts=1
    )
    assert answer.failure == "malformed"
