"""RoboReward: a grade from 1 to 5 for the video so far. It is a plain generative model (Qwen3-VL)."""

from collections.abc import Sequence

import numpy as np

from embodied_rm.models.judges.chat import Answer, Query
from embodied_rm.models.judges.judge_state import EpisodeContext
from embodied_rm.models.judges.questions import CameraQuestion, ParsedAnswer
from embodied_rm.models.judges.released_prompts import ROBO_REWARD_PROMPT
from embodied_rm.models.released.answer_readers import read_grade

MAX_FRAMES = 16  # maximum number of frames per video, as in Large Reward Models


class RoboRewardQuestion(CameraQuestion):
    """Grade of the video so far, of one camera: progress is (grade - 1) / 4, success is a 5."""

    predicts_success = True
    history_capacity = 64

    def build_queries(self, context: EpisodeContext) -> tuple[Query, ...]:
        history_frames = context.history.sample_evenly(context.current, MAX_FRAMES)
        frames = [self.camera_image(frame, context) for frame in history_frames]
        video = np.stack(frames * 2 if len(frames) == 1 else frames)  # a video has at least two frames
        task = ROBO_REWARD_PROMPT.replace("{instruction}", context.instruction)
        return (Query(parts=(video, task), max_tokens=128),)

    def parse_answers(self, answers: Sequence[Answer], context: EpisodeContext) -> ParsedAnswer | None:
        grade = read_grade(answers[0].text or "")
        return None if grade is None else ParsedAnswer((grade - 1) / 4, float(grade == 5))
