"""Who is being judged at the moment, in numbers: nothing of what anybody showed."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import numpy as np

from embodied_rm.serve.sessions import UNKNOWN, Sessions, UnderWay

RUNS, ENVIRONMENTS = 200, 64
"""That are told at most, those asked about last first; of each run, the first of its environments."""


class Environment(msgspec.Struct, kw_only=True):
    """An episode under way."""

    env: int
    episode: int
    step: int
    progress: float | None
    """None: nothing was judged since it was taken up again."""
    success: float | None
    """Probability; None: the model does not tell."""
    idle_s: float


class Run(msgspec.Struct, kw_only=True):
    """The episodes of one client."""

    run: str
    environments: int
    step: int
    """The farthest of any of them."""
    progress: float | None
    """Mean of those that were judged."""
    success: float | None
    idle_s: float
    """Seconds since anybody asked about any of them."""
    shown: list[Environment]


class Overview(msgspec.Struct, kw_only=True):
    """Everything under way."""

    runs: list[Run]
    unshown: int
    """Runs that are not told."""


def overview(sessions: Sessions) -> bytes:
    """Everything under way, as JSON."""
    every = sessions.runs()
    latest = sorted(every, key=lambda run: min(one.idle for one in every[run]))[:RUNS]
    runs = [run_of(name, every[name]) for name in latest]
    return msgspec.json.encode(Overview(runs=runs, unshown=len(every) - len(runs)))


def run_of(name: str, under_way: Sequence[UnderWay]) -> Run:
    """What is told of a run."""
    first = sorted(under_way, key=lambda one: one.env)[:ENVIRONMENTS]
    return Run(
        run=name,
        environments=len(under_way),
        step=max(one.at.step for one in under_way),
        progress=mean([said(one, "value") for one in under_way]),
        success=mean([said(one, "success") for one in under_way]),
        idle_s=round(min(one.idle for one in under_way), 1),
        shown=[environment_of(one) for one in first],
    )


def environment_of(one: UnderWay) -> Environment:
    """What is told of an episode."""
    return Environment(
        env=one.env,
        episode=one.at.episode,
        step=one.at.step,
        progress=said(one, "value"),
        success=said(one, "success"),
        idle_s=round(one.idle, 1),
    )


def said(one: UnderWay, name: str) -> float | None:
    """A number that was judged last; None where there is none."""
    value = UNKNOWN if one.said is None else float(one.said.columns[name][one.said.row])
    return None if value == UNKNOWN else round(value, 4)


def mean(values: Sequence[float | None]) -> float | None:
    """Of those that are known."""
    known = [value for value in values if value is not None]
    return round(float(np.mean(known)), 4) if known else None
