"""Who is being judged at the moment, in numbers: nothing of what anybody showed."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import numpy as np

from embodied_rm.serve.sessions import UNKNOWN_VALUE, SessionStatus, SessionStore

MAX_CLIENTS, MAX_ENVS_PER_CLIENT = 200, 64
"""That are told at most, those asked about last first; of each run, the first of its environments."""


class EnvStatus(msgspec.Struct, kw_only=True):
    """An episode under way."""

    env_id: int
    episode_id: int
    step: int
    progress: float | None
    """None: nothing was judged since it was taken up again."""
    success: float | None
    """Probability; None: the model does not tell."""
    idle_s: float


class ClientStatus(msgspec.Struct, kw_only=True):
    """The episodes of one client."""

    client_id: str
    num_envs: int
    max_step: int
    """The farthest of any of them."""
    mean_progress: float | None
    """Mean of those that were judged."""
    mean_success: float | None
    idle_s: float
    """Seconds since anybody asked about any of them."""
    envs: list[EnvStatus]


class SessionOverview(msgspec.Struct, kw_only=True):
    """Everything under way."""

    clients: list[ClientStatus]
    num_omitted_clients: int
    """Runs that are not told."""


def encode_overview(sessions: SessionStore) -> bytes:
    """Everything under way, as JSON."""
    statuses = sessions.status_by_client()
    recent_clients = sorted(statuses, key=lambda client_id: min(status.idle_s for status in statuses[client_id]))[
        :MAX_CLIENTS
    ]
    clients = [client_status(name, statuses[name]) for name in recent_clients]
    return msgspec.json.encode(SessionOverview(clients=clients, num_omitted_clients=len(statuses) - len(clients)))


def client_status(client_id: str, statuses: Sequence[SessionStatus]) -> ClientStatus:
    """What is told of a run."""
    visible_statuses = sorted(statuses, key=lambda status: status.env_id)[:MAX_ENVS_PER_CLIENT]
    return ClientStatus(
        client_id=client_id,
        num_envs=len(statuses),
        max_step=max(status.frame_key.step for status in statuses),
        mean_progress=mean_of_known([last_output(status, "progress") for status in statuses]),
        mean_success=mean_of_known([last_output(status, "success") for status in statuses]),
        idle_s=round(min(status.idle_s for status in statuses), 1),
        envs=[env_status(status) for status in visible_statuses],
    )


def env_status(status: SessionStatus) -> EnvStatus:
    """What is told of an episode."""
    return EnvStatus(
        env_id=status.env_id,
        episode_id=status.frame_key.episode_id,
        step=status.frame_key.step,
        progress=last_output(status, "progress"),
        success=last_output(status, "success"),
        idle_s=round(status.idle_s, 1),
    )


def last_output(status: SessionStatus, name: str) -> float | None:
    """A number that was judged last; None where there is none."""
    value = UNKNOWN_VALUE if status.result is None else float(status.result.columns[name][status.result.row])
    return None if value == UNKNOWN_VALUE else round(value, 4)


def mean_of_known(values: Sequence[float | None]) -> float | None:
    """Of those that are known."""
    known = [value for value in values if value is not None]
    return round(float(np.mean(known)), 4) if known else None
