"""`ShuffledJudge`: progress of shuffled frames of a complete video, so that their order gives no information."""

import re
from collections import Counter
from collections.abc import Iterable, Sequence

import numpy as np

from embodied_rm.errors import UserError
from embodied_rm.models.judges import parse, prompts
from embodied_rm.models.judges.chat import UNPARSABLE_ANSWER, ChatModel, ContentPart, Query
from embodied_rm.models.judges.frame_history import FrameHistory, MultiViewFrame
from embodied_rm.models.judges.questions import view_parts
from embodied_rm.models.judges.vlm_judge import frames_per_env, remove_token_brackets
from embodied_rm.models.reward_model import Capabilities, Demonstration, InputSpec, RewardState, make_plain_output
from embodied_rm.types import IntArray, RewardOutput, Views

MAX_FRAMES = 16  # maximum number of frames per query; progress is interpolated between them
FRAME_PROGRESS_PATTERN = re.compile(
    r"moment\s++(\d{1,9}+)\W{0,8}<progress>\s*+(\d++(?:\.\d++)?+\s*+%?)\s*+</progress>", re.IGNORECASE
)
OFFLINE_ONLY_MESSAGE = (
    "question=shuffled needs the complete video: it works with score and evaluate, but not as a reward, and an audit "
    "of rewards does not apply"
)


class ShuffledJudge:
    """A `VideoRewardModel`. The first frame is shown first; the order of the others depends on their number only.

    It needs the end of the episode, so it cannot be used as a reward. Source: GVL (Ma et al., arXiv 2411.04549).
    """

    def __init__(self, chat: ChatModel, input_spec: InputSpec | None = None) -> None:
        self.chat, self.input_spec = chat, input_spec or InputSpec()
        self.failures: Counter[str] = Counter()
        """Number of unscored frames by reason, see `chat.FAILURES`."""
        self.capabilities = Capabilities(predicts_success=False, failures=self.failures)

    def reset(
        self,
        views: Views,
        instructions: Sequence[str],
        goal: Views | None = None,
        reference: Demonstration | None = None,
    ) -> RewardState:
        """Raise `UserError`: it scores complete videos only."""
        raise UserError(OFFLINE_ONLY_MESSAGE)

    def step(self, state: RewardState, views: Views) -> tuple[RewardOutput, RewardState]:
        """Raise `UserError`: it scores complete videos only."""
        raise UserError(OFFLINE_ONLY_MESSAGE)

    def score_video(self, instruction: str, blocks: Iterable[Views]) -> RewardOutput:
        """Score every frame of a video. Frames next to one without an answer are invalid, but the first of all."""
        history, visible = FrameHistory(capacity=4 * MAX_FRAMES), []
        names: tuple[str, ...] = ()
        last_frame: MultiViewFrame | None = None
        for views in blocks:
            names = views.names
            for frame in frames_per_env(views):
                visible.append(bool(frame.visible.any()))
                history = history if last_frame is None or not visible[-1] else history.append(last_frame)
                last_frame = frame if visible[-1] or last_frame is None else last_frame
        assert last_frame is not None
        visible_indices = np.flatnonzero(visible)
        frames = history.sample_evenly(last_frame, MAX_FRAMES)
        frame_indices = np.round(np.linspace(0, max(len(visible_indices) - 1, 0), len(frames))).astype(np.int64)
        if len(visible_indices):
            frame_indices = visible_indices[frame_indices]
        return self._score_frames(remove_token_brackets(instruction), names, frames, frame_indices, len(visible))

    def _score_frames(
        self,
        instruction: str,
        view_names: Sequence[str],
        frames: Sequence[MultiViewFrame],
        frame_indices: IntArray,
        length: int,
    ) -> RewardOutput:
        if len(frames) < 2:
            return interpolate_progress(np.zeros(1, np.int64), np.array([0.0 if length == 1 else np.nan]), length)
        order = np.random.default_rng(len(frames)).permutation(np.arange(1, len(frames)))
        task_text = prompts.TASK_HEADER.format(instruction=instruction)
        parts: list[ContentPart] = [task_text, prompts.SHUFFLED_QUESTION, "\n"]
        for number, row in enumerate((0, *order)):
            title = prompts.FRAME_LABEL.format(number=number) if number else prompts.FIRST_FRAME_HEADER
            parts += view_parts(title, frames[int(row)], view_names)
        query = Query(parts=tuple(parts), system=prompts.SYSTEM_PROMPT, max_tokens=24 * len(frames))
        (answer,) = self.chat.ask([query])
        found = FRAME_PROGRESS_PATTERN.findall(parse.conclusion(answer.text or ""))
        by_number = {int(number): parse.percentage(text) for number, text in found}
        values = np.zeros(len(frames))
        for number, row in enumerate(order, start=1):
            value = by_number.get(number)
            values[row] = np.nan if value is None else value
        output = interpolate_progress(frame_indices, values, length)
        if not output.valid.all():
            self.failures[answer.failure or UNPARSABLE_ANSWER] += int((~output.valid).sum())
        return output


def interpolate_progress(frame_indices: IntArray, values: np.ndarray, length: int) -> RewardOutput:
    """Interpolate the progress of `length` frames linearly from the values at some frames, in ascending order.

    After the last of these frames its progress is repeated. A value that is NaN is unknown: frames between it and its
    neighbors are invalid, but the first frame of all.
    """
    progress = np.interp(np.arange(length), frame_indices, values)
    valid = np.isfinite(progress)
    valid[0] = True
    success = np.full(length, np.nan, np.float32)
    success[0] = 0
    known = np.flatnonzero(np.isfinite(values))
    filled = np.interp(np.arange(length), frame_indices[known], values[known]) if len(known) else np.zeros(length)
    return make_plain_output(filled.astype(np.float32), valid, success)
