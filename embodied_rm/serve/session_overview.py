"""Overview of the active episodes: numbers only, no images or instructions."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import numpy as np

from embodied_rm.serve.sessions import UNKNOWN_VALUE, SessionStatus, SessionStore

MAX_CLIENTS, MAX_ENVS_PER_CLIENT = 200, 64
"""Clients with the latest requests, and their first environments, that the overview lists."""


class EnvStatus(msgspec.Struct, kw_only=True):
    """One active episode."""

    env_id: int
    episode_id: int
    step: int
    progress: float | None
    """None: not scored since it was restored."""
    success: float | None
    """Probability; None: the model does not predict success."""
    idle_s: float


class ClientStatus(msgspec.Struct, kw_only=True):
    """The active episodes of one client."""

    client_id: str
    num_envs: int
    max_step: int
    """Largest step of its episodes."""
    mean_progress: float | None
    """Mean over episodes with a prediction."""
    mean_success: float | None
    idle_s: float
    """Seconds since the client's last request."""
    envs: list[EnvStatus]


class SessionOverview(msgspec.Struct, kw_only=True):
    """All active episodes."""

    clients: list[ClientStatus]
    num_omitted_clients: int
    """Clients beyond `MAX_CLIENTS`."""


def encode_overview(sessions: SessionStore) -> bytes:
    """Return the overview as JSON."""
    statuses = sessions.status_by_client()
    recent_clients = sorted(statuses, key=lambda client_id: min(status.idle_s for status in statuses[client_id]))[
        :MAX_CLIENTS
    ]
    clients = [client_status(name, statuses[name]) for name in recent_clients]
    return msgspec.json.encode(SessionOverview(clients=clients, num_omitted_clients=len(statuses) - len(clients)))


def client_status(client_id: str, statuses: Sequence[SessionStatus]) -> ClientStatus:
    """Summarize the episodes of one client."""
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
    """Summarize one episode."""
    return EnvStatus(
        env_id=status.env_id,
        episode_id=status.frame_key.episode_id,
        step=status.frame_key.step,
        progress=last_output(status, "progress"),
        success=last_output(status, "success"),
        idle_s=round(status.idle_s, 1),
    )


def last_output(status: SessionStatus, name: str) -> float | None:
    """Return an output of the last frame; None if unknown."""
    value = UNKNOWN_VALUE if status.result is None else float(status.result.columns[name][status.result.row])
    return None if value == UNKNOWN_VALUE else round(value, 4)


def mean_of_known(values: Sequence[float | None]) -> float | None:
    """Return the mean of the values that are known; None if there are none."""
    known = [value for value in values if value is not None]
    return round(float(np.mean(known)), 4) if known else None
