"""Active episodes: the step of each, its last result, and whether a request is new, a retry or out of order.

A client that loses its connection cannot know whether its request arrived, and sends it again. The same episode, step
and frames get the same response, and are scored once.
"""

import asyncio
import time
from collections import Counter, deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from embodied_rm.serve.peer import PEER, largest_other
from embodied_rm.serve.protocol import EpisodeBatch, FrameKey, FrameRequest, RestoreRequest, SessionKey, SessionRequest
from embodied_rm.serve.request_errors import ErrorCode, RequestError, overload_error
from embodied_rm.serve.request_queue import WorkResult
from embodied_rm.serve.service_config import ServeLimits
from embodied_rm.serve.state_store import StateBatch, StateRow, StateSlot

Array = npt.NDArray[Any]
SWEEP_INTERVAL_S = 60.0  # seconds between two sweeps for idle episodes

OutputColumns = dict[str, Array]  # output name -> array [N], as sent
UNKNOWN_VALUE = -1.0  # sent in place of a value that the model does not predict
OUTPUT_DTYPES = dict.fromkeys(("progress", "valid", "subtask", "success", "uncertainty", "ood"), "<f4")
OUTPUT_DTYPES |= {"valid": "|b1", "subtask": "<i8"}


class CachedResult(NamedTuple):
    """Prediction of one frame: a row of its batch."""

    columns: OutputColumns
    row: int


@dataclass
class EpisodeSession:
    """State of one active episode."""

    frame_key: FrameKey
    slot: StateSlot
    result: CachedResult | None
    last_used_s: float
    peer: str


class PendingFrame(NamedTuple):
    """A frame that is being scored."""

    frame_key: FrameKey
    committed: asyncio.Future[None]  # done when the result is stored or the request has failed
    peer: str  # that sent it


class SessionStore:
    """All active episodes. Used from one thread only."""

    def __init__(self, limits: ServeLimits, clock: Callable[[], float] = time.monotonic) -> None:
        self._limits, self.clock = limits, clock
        self.sessions: dict[SessionKey, EpisodeSession] = {}
        self._pending: dict[SessionKey, PendingFrame] = {}
        self._deferred: deque[Callable[[], None]] = deque()
        self._last_sweep_s = clock()

    def __len__(self) -> int:
        return len(self.sessions)

    def defer(self, callback: Callable[[], None]) -> None:
        """Run `callback` when the event loop is next idle, or before the next request, whichever is first."""
        self._deferred.append(callback)
        asyncio.get_running_loop().call_soon(self._run_deferred)

    def _run_deferred(self) -> None:
        while self._deferred:
            self._deferred.popleft()()

    def partition(self, request: FrameRequest) -> tuple[list[int], list[asyncio.Future[None]]]:
        """Return the rows of a request to score, and the futures of rows that an identical request is scoring.

        Raises `RequestError` for a row out of order.
        """
        self._run_deferred()
        self.evict_idle()
        new_rows, futures, unknown_envs = list[int](), list[asyncio.Future[None]](), list[int]()
        for row, (key, frame_key) in enumerate(zip(request.episodes.keys, request.frame_keys, strict=True)):
            pending = self._pending.get(key)
            if pending is not None:
                if pending.frame_key != frame_key:
                    raise out_of_order_error(key, frame_key, "an earlier request for this environment is pending")
                futures.append(pending.committed)
                continue
            session = self.sessions.get(key)
            if session is not None and session.frame_key == frame_key and session.result is not None:
                session.last_used_s = self.clock()
            elif request.instructions is None and (
                session is None or session.frame_key.episode_id < frame_key.episode_id
            ):
                unknown_envs.append(key[1])
            else:
                check_order(request, key, frame_key, session)
                new_rows.append(row)
        if unknown_envs:
            raise SessionNotFoundError(unknown_envs)
        if request.instructions is not None:
            self._check_capacity([request.episodes.keys[row] for row in new_rows])
        return new_rows, futures

    def mark_pending(self, request: SessionRequest, row_indices: Sequence[int]) -> asyncio.Future[None]:
        """Mark rows as being scored. The caller completes the returned future once they are committed."""
        committed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        keys, frame_keys = request.episodes.keys, request.frame_keys
        for row in row_indices:
            self._pending[keys[row]] = PendingFrame(frame_keys[row], committed, PEER.get())
        return committed

    def commit(
        self, request: SessionRequest, row_indices: Sequence[int], work: WorkResult, columns: OutputColumns | None
    ) -> None:
        """Store the results of rows. `columns`: None for restored episodes, whose last prediction is not known."""
        now, touched_batches = self.clock(), set[StateBatch]()
        keys, frame_keys = request.episodes.keys, request.frame_keys
        starts = not isinstance(request, FrameRequest) or request.instructions is not None
        for offset, row in enumerate(row_indices):
            key = keys[row]
            peer = self._pending.pop(key).peer
            session = self.sessions.get(key)
            result = None if columns is None else CachedResult(columns, offset)
            if session is not None:
                touched_batches.add(session.slot.move(work.state_batch, work.first_row + offset))
                session.frame_key, session.result, session.last_used_s = frame_keys[row], result, now
                session.peer = peer
            elif starts:  # a missing session of a step was ended in the meantime
                slot = StateSlot(work.state_batch, work.first_row + offset)
                self.sessions[key] = EpisodeSession(frame_keys[row], slot, result, now, peer)
        for batch in touched_batches:
            batch.compact()

    def clear_pending(self, request: SessionRequest, row_indices: Sequence[int]) -> None:
        """Forget that rows are being scored, after a failure. Their episodes stay where they were."""
        keys = request.episodes.keys
        for row in row_indices:
            del self._pending[keys[row]]

    def state_rows(self, episodes: EpisodeBatch, row_indices: Sequence[int]) -> list[StateRow]:
        """Return the current states of rows."""
        keys = episodes.keys
        slots = [self.sessions[keys[row]].slot for row in row_indices]
        return [(slot.batch.state, slot.row) for slot in slots]

    def cached_outputs(self, request: FrameRequest) -> OutputColumns:
        """Return the stored predictions of a request. Raises `RequestError` where a row is at another step by now."""
        results: list[CachedResult] = []
        for key, frame_key in zip(request.episodes.keys, request.frame_keys, strict=True):
            session = self.sessions.get(key)
            if session is None or session.frame_key != frame_key or session.result is None:
                raise out_of_order_error(key, frame_key, "it was not scored, or a later frame was")
            results.append(session.result)
        columns = results[0].columns
        is_whole_batch = len(results) == len(columns["progress"])
        if is_whole_batch and all(
            result.columns is columns and result.row == row for row, result in enumerate(results)
        ):
            return columns
        return {
            name: np.array([result.columns[name][result.row] for result in results], dtype)
            for name, dtype in OUTPUT_DTYPES.items()
        }

    def end(self, episodes: EpisodeBatch) -> int:
        """End these episodes and earlier ones of the same environments. Returns the number that ended."""
        self._run_deferred()
        ended_keys = [
            key
            for key, episode_id in zip(episodes.keys, episodes.episode_ids, strict=True)
            if key in self.sessions and self.sessions[key].frame_key.episode_id <= episode_id
        ]
        for key in ended_keys:
            self.sessions.pop(key).slot.release()
        return len(ended_keys)

    def check_restore(self, request: RestoreRequest) -> None:
        """Raise `RequestError` if an episode cannot be restored: it is being scored, or it is at a later step here."""
        self._run_deferred()
        for key, frame_key in zip(request.episodes.keys, request.frame_keys, strict=True):
            session = self.sessions.get(key)
            if key in self._pending:
                raise out_of_order_error(key, frame_key, "a request for this environment is pending")
            if session is not None and session.frame_key[:2] > frame_key[:2]:
                place = f"step {session.frame_key.step} of episode {session.frame_key.episode_id}"
                raise out_of_order_error(key, frame_key, f"it is at {place} here")
        self._check_capacity(request.episodes.keys)

    def evict_idle(self) -> None:
        """End episodes that have been idle for too long."""
        now = self.clock()
        if now - self._last_sweep_s < min(SWEEP_INTERVAL_S, self._limits.idle_timeout_s):
            return
        self._last_sweep_s = now
        for key, session in list(self.sessions.items()):
            if now - session.last_used_s >= self._limits.idle_timeout_s and key not in self._pending:
                self.sessions.pop(key).slot.release()

    def _check_capacity(self, keys: Sequence[SessionKey]) -> None:
        """Raise `RequestError` if there are too many episodes with these of one client, overall or for the client."""
        active_keys, limits = self.sessions.keys() | self._pending.keys(), self._limits
        if active_keys.issuperset(keys):
            return
        (client_id, _), active_keys = keys[0], active_keys.union(keys)
        max_per_client = max(1, int(limits.max_sessions * limits.max_client_share))
        num_excess, message = len(active_keys) - limits.max_sessions, ""
        is_client_full = sum(key[0] == client_id for key in active_keys) > max_per_client
        if is_client_full and max_per_client < limits.max_sessions:
            message = f"{max_per_client} episodes of this client are active already: end some"
        elif num_excess > self._make_room(num_excess, len(keys)):
            message = f"{limits.max_sessions} episodes are active already: end some"
        if message:
            self._last_sweep_s = -limits.idle_timeout_s
            raise overload_error(message)

    def _make_room(self, num_excess: int, num_new: int) -> int:
        """End as many episodes of other peers as are too many, and return their number; 0, and none, if they are fewer.

        They are the longest idle ones of a peer that still has more of them than that of the current task.
        """
        counts = Counter(session.peer for session in self.sessions.values())
        counts.update(frame.peer for key, frame in self._pending.items() if key not in self.sessions)
        own_count, ended_keys = counts[PEER.get()] + num_new, list[SessionKey]()
        while len(ended_keys) < num_excess and (larger := largest_other(counts, PEER.get(), own_count)) is not None:
            idle = {key: s for key, s in self.sessions.items() if s.peer == larger and key not in self._pending}
            most = min(num_excess - len(ended_keys), counts[larger] - own_count)
            chosen = sorted(idle.keys() - set(ended_keys), key=lambda key: idle[key].last_used_s)[:most]
            ended_keys += chosen
            counts[larger] = own_count if len(chosen) < most else counts[larger] - most  # the others are pending
        if len(ended_keys) < num_excess:
            return 0
        for key in ended_keys:
            self.sessions.pop(key).slot.release()
        return len(ended_keys)


def check_order(request: FrameRequest, key: SessionKey, frame_key: FrameKey, session: EpisodeSession | None) -> None:
    """Raise `RequestError` unless the frame is the next one of its environment."""
    if session is None:
        return
    starts, current = request.instructions is not None, session.frame_key
    if current.episode_id > frame_key.episode_id or (starts and current.episode_id == frame_key.episode_id):
        raise out_of_order_error(key, frame_key, f"episode {current.episode_id} has already started")
    if starts:
        return
    if current.step == frame_key.step:
        raise out_of_order_error(key, frame_key, "this step was already scored with other frames")
    if current.step + 1 != frame_key.step:
        raise out_of_order_error(key, frame_key, f"the next step is {current.step + 1}")


class SessionNotFoundError(RequestError):
    """Episodes that are unknown here. The client may restore them."""

    def __init__(self, env_ids: Sequence[int]) -> None:
        message = f"no active episodes for {len(env_ids)} environments, among them {env_ids[0]}: reset or restore them"
        super().__init__(ErrorCode.SESSION_NOT_FOUND, message)
        self.env_ids = tuple(env_ids)


def out_of_order_error(key: SessionKey, frame_key: FrameKey, reason: str) -> RequestError:
    """Return the error for a frame that cannot be scored now."""
    place = f"environment {key[1]}, episode {frame_key.episode_id}, step {frame_key.step}"
    return RequestError(ErrorCode.OUT_OF_ORDER, f"{place}: {reason}")
