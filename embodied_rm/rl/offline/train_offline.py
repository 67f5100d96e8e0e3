"""The loop of offline learning: batches of recorded transitions, diagnostics on held-out episodes, checkpoints."""

from __future__ import annotations

import json
from typing import Any

import torch

from embodied_rm.atomic_file import write_atomic
from embodied_rm.checkpoint_io import MANIFEST_NAME, load_tensors, save_tensors
from embodied_rm.errors import CheckpointError
from embodied_rm.logs import open_logger
from embodied_rm.rl.learner.policy import GaussianPolicy, PolicySpec
from embodied_rm.rl.offline.cql import CQL
from embodied_rm.rl.offline.famo2o import FamO2O
from embodied_rm.rl.offline.iql import IQL
from embodied_rm.rl.offline.offline_config import OfflineConfig
from embodied_rm.rl.offline.offline_learner import OfflineLearner
from embodied_rm.rl.offline.transitions import OfflineTransitions, check_unit_actions
from embodied_rm.rl.resume_inputs import check_same_inputs, describe_inputs
from embodied_rm.rl.watch.log_rows import read_rows
from embodied_rm.run_folder import Reporter, RunFolder
from embodied_rm.threads import torch_threads

ARCHITECTURE = "offline_learner"
CHECKPOINT_DIR = "checkpoint"
PROGRESS_FILE = "progress.jsonl"
NUM_ROWS = 20  # rows of `progress.jsonl`, and checkpoints
LEARNERS: dict[str, type[OfflineLearner]] = {"iql": IQL, "cql": CQL, "famo2o": FamO2O}

OfflineRow = dict[str, Any]


def make_policy(transitions: OfflineTransitions, config: OfflineConfig) -> GaussianPolicy:
    """Return an untrained policy for the observations and actions of transitions."""
    obs_dim = transitions.observation.shape[1]
    with torch.random.fork_rng():
        torch.manual_seed(config.seed)
        policy = GaussianPolicy(
            PolicySpec(
                obs_dim=obs_dim,
                action_dim=transitions.action.shape[1],
                hidden=tuple(config.hidden_sizes),
                log_std_init=config.log_std_init,
                length_dims=obs_dim,
            )
        )
    policy.normalizer.fit(transitions.observation)
    return policy


@torch_threads(1)
def learn_offline(
    policy: GaussianPolicy, transitions: OfflineTransitions, config: OfflineConfig, run: RunFolder, reporter: Reporter
) -> list[OfflineRow]:
    """Train a policy in place on recorded transitions, and return the rows of `progress.jsonl`.

    An interrupted run continues at its last checkpoint, bit-identical on the CPU.

    Args:
        policy: Policy with a fitted normalizer, see `make_policy`.
        transitions: Recorded transitions; some episodes are held out and only measure errors.
        config: Settings.
        run: Folder of rows and checkpoint.
        reporter: Output for the user.

    Raises:
        UserError: A loss is not finite, or CQL or FamO2O is asked for actions outside [-1, 1].
        DataError: There are fewer than two episodes.
    """
    if config.method != "iql":
        check_unit_actions(transitions.action, f"method={config.method}")
    train, validation = transitions.split(config.validation_share, config.seed)
    with torch.random.fork_rng():
        torch.manual_seed(config.seed)
        learner = LEARNERS[config.method](policy, config)
    inputs = describe_inputs(vars(config), vars(transitions).values())
    rows = load_rows(learner, inputs, run)
    interval = max(1, config.steps // NUM_ROWS)
    start = rows[-1]["step"] if rows else 0
    with open_logger(run, reporter) as log:
        for step in reporter.track(range(start, config.steps), config.method, total=config.steps - start):
            losses = learner.update(train.sample(config.batch_size, learner.generator), step)
            if (step + 1) % interval and step + 1 < config.steps:
                continue
            rows.append({"step": step + 1, "loss": losses, **diagnostics(learner, train, validation)})
            log.write(step + 1, rows[-1])
            save_rows(learner, rows, inputs, run)
    return rows


def diagnostics(learner: OfflineLearner, train: OfflineTransitions, validation: OfflineTransitions) -> OfflineRow:
    """Return the diagnostics of the training and of the held-out episodes."""
    rows = torch.arange(min(len(train), len(validation)))
    evenly = rows * len(train) // len(rows)  # as many transitions of training, over all episodes
    return {"train": learner.diagnose(train.take(evenly)), "validation": learner.diagnose(validation)}


def save_rows(learner: OfflineLearner, rows: list[OfflineRow], inputs: dict[str, str], run: RunFolder) -> None:
    """Write the rows and then the checkpoint, so that a checkpoint never lacks its rows."""
    write_atomic(run.file_path(PROGRESS_FILE), "".join(json.dumps(row, allow_nan=False) + "\n" for row in rows))
    manifest = {"architecture": ARCHITECTURE, "inputs": inputs, "rows": len(rows)}
    save_tensors(run.path / CHECKPOINT_DIR, learner.state_dict(), manifest)


def load_rows(learner: OfflineLearner, inputs: dict[str, str], run: RunFolder) -> list[OfflineRow]:
    """Restore a learner from the checkpoint of a run, and return its rows; none if there is no checkpoint.

    Raises `UserError` if the run was started with other inputs.
    """
    folder = run.path / CHECKPOINT_DIR
    if not (folder / MANIFEST_NAME).exists():
        return []
    tensors, manifest = load_tensors(folder, ARCHITECTURE)
    check_same_inputs(manifest["inputs"], inputs, run.path)
    learner.load_state_dict(tensors, folder)
    rows = read_rows(run.path / PROGRESS_FILE)[: manifest["rows"]]
    if len(rows) != manifest["rows"]:
        raise CheckpointError(f"{run.path / PROGRESS_FILE}: {len(rows)} rows, the checkpoint is of {manifest['rows']}")
    return rows
