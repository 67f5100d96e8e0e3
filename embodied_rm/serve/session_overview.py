"""Overview of the active episodes: numbers only, no images or instructions."""

from collections.abc import Mapping, Sequence

import msgspec
import numpy as np

from embodied_rm.serve.sessions import UNKNOWN_VALUE, EpisodeSession, SessionStore

MAX_CLIENTS, MAX_ENVS_PER_CLIENT = 200, 64
"""Clients with the latest requests, and their first environments, that the overview lists."""


class EnvStatus(msgspec.Struct, kw_only=True):
    """One active episode."""

    env_id: int
    episode_id: int
    step: int
    progress: float | None  # None: not scored since it was restored
    success: float | None  # probability; None: the model does not predict success
    idle_s: float


class ClientStatus(msgspec.Struct, kw_only=True):
    """The active episodes of one client."""

    client_id: str
    num_envs: int
    max_step: int
    mean_progress: float | None  # mean over episodes with a prediction
    mean_success: float | None
    idle_s: float  # seconds since the client's last request
    envs: list[EnvStatus]


def encode_overview(store: SessionStore) -> bytes:
    """Return the overview as JSON: `clients`, at most `MAX_CLIENTS`, and the number of the others."""
    now, sessions_by_client = store.clock(), dict[str, dict[int, EpisodeSession]]()
    for (client_id, env_id), session in store.sessions.items():
        sessions_by_client.setdefault(client_id, {})[env_id] = session
    idle_s = {
        client_id: min(now - session.last_used_s for session in sessions.values())
        for client_id, sessions in sessions_by_client.items()
    }
    recent_clients = sorted(idle_s, key=idle_s.__getitem__)[:MAX_CLIENTS]
    clients = [client_status(client_id, sessions_by_client[client_id], now) for client_id in recent_clients]
    return msgspec.json.encode({"clients": clients, "num_omitted_clients": len(idle_s) - len(clients)})


def client_status(client_id: str, sessions: Mapping[int, EpisodeSession], now: float) -> ClientStatus:
    """Summarize the episodes of one client."""
    envs = [
        EnvStatus(
            env_id=env_id,
            episode_id=session.frame_key.episode_id,
            step=session.frame_key.step,
            progress=last_output(session, "progress"),
            success=last_output(session, "success"),
            idle_s=round(now - session.last_used_s, 1),
        )
        for env_id, session in sorted(sessions.items())
    ]
    return ClientStatus(
        client_id=client_id,
        num_envs=len(envs),
        max_step=max(env.step for env in envs),
        mean_progress=mean_of_known([env.progress for env in envs]),
        mean_success=mean_of_known([env.success for env in envs]),
        idle_s=min(env.idle_s for env in envs),
        envs=envs[:MAX_ENVS_PER_CLIENT],
    )


def last_output(session: EpisodeSession, name: str) -> float | None:
    """Return an output of the last frame; None if unknown."""
    value = UNKNOWN_VALUE if session.result is None else float(session.result.columns[name][session.result.row])
    return None if value == UNKNOWN_VALUE else round(value, 4)


def mean_of_known(values: Sequence[float | None]) -> float | None:
    """Return the mean of the values that are known; None if there are none."""
    known = [value for value in values if value is not None]
    return round(float(np.mean(known)), 4) if known else None
