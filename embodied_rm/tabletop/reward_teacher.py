"""The teacher of the reward model of a refinement: its own data, and who labels the learner's episodes."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from embodied_rm.data.dataset_path import resolve_dataset
from embodied_rm.data.lerobot.lerobot_dataset import LeRobotDataset
from embodied_rm.data.source import subtask_stride
from embodied_rm.models.progress_net import ProgressNet
from embodied_rm.models.reward_model import DescribedRewardModel, RewardModel
from embodied_rm.models.scoring import episode_views, score_video
from embodied_rm.run_folder import Reporter, RunFolder
from embodied_rm.score import read_episodes_for
from embodied_rm.tabletop.refine_command import RefineCommand
from embodied_rm.training.teaching import TEACH_DIR, LabelFn, Teacher, keep_labels
from embodied_rm.types import Episode


def open_teacher(config: RefineCommand, model: DescribedRewardModel, run: RunFolder, reporter: Reporter) -> Teacher:
    """Open the teacher of a refinement. The simulator labels the episodes or, if it is set, the labeler."""
    assert isinstance(model, ProgressNet)
    label: LabelFn = keep_labels
    if config.labeler.type is not None:
        from embodied_rm.models.judges.factory import open_judge  # by transformers, which is optional

        label = judge_labels(open_judge(config.labeler))
    own_data: list[Episode] = []
    if config.teach.data is not None:
        source = LeRobotDataset(resolve_dataset(config.teach.data))
        own_data = [
            next(read_episodes_for(model.input_spec, source, [row], subtask_stride(meta, config.teach.frame_stride)))
            for row, meta in enumerate(reporter.track(source.meta, f"read {config.teach.data}"))
        ]
    teach, reward = config.teach, config.reward
    patience = teach.success_frames(reward.score_every, reward.success_patience)
    folder = run.path / TEACH_DIR
    return Teacher(model, teach, folder, reporter, own_data=own_data, label=label, patience=patience, seed=config.seed)


def judge_labels(judge: RewardModel) -> LabelFn:
    """Return a function that labels an episode by the predictions of a judge; None if it did not score each frame."""
    threshold = judge.capabilities.select_success_threshold(None)

    def label(episode: Episode) -> Episode | None:
        output = score_video(judge, episode.instruction, [episode_views(episode)])
        if not output.valid.all():
            return None
        success = None if np.isnan(output.success[-1]) else bool(output.success[-1] >= threshold)
        return replace(episode, progress=output.progress.astype(np.float32), success=success, subtasks=())

    return label
