"""A reward model that goes on learning from the episodes of its own learner.

A policy finds states in which the model is wrong, and no demonstration shows them. Every few iterations, the model
therefore learns from the learner's episodes and from its own data, labeled by the simulator or a judge. On held-out
episodes of both, the model before is the first point of the curve whose best weights are kept: they stay if nothing is
better. The threshold of success is fitted to the learner's latest episodes in any case: the model should believe as
many of them as succeed.

Sources: arXiv 2410.23022 ("ONI"), where the reward model of observations grows with the policy; arXiv 2508.05613
("Cooper"), where policy and reward model are updated in turns.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

from gymnasium.vector import VectorEnv

from embodied_rm.checkpoint_io import MANIFEST_NAME
from embodied_rm.data.fingerprint import fingerprint
from embodied_rm.data.lerobot.lerobot_dataset import LeRobotDataset
from embodied_rm.data.lerobot.write import DatasetWriter
from embodied_rm.data.record import RecordEpisodes
from embodied_rm.errors import UserError, check_minimum
from embodied_rm.evaluate.success_metrics import fit_episode_threshold
from embodied_rm.labels.labeled_episode import label_ground_truth
from embodied_rm.models.checkpoint import load_progress_net, save_progress_net
from embodied_rm.models.progress_net import ProgressNet
from embodied_rm.models.scoring import score_episodes
from embodied_rm.run_folder import Reporter, RunFolder
from embodied_rm.training.fitting import Execution
from embodied_rm.training.held_out import HeldOut, HeldOutConfig
from embodied_rm.training.run_training import HELD_OUT_FILE, train
from embodied_rm.training.train_config import TrainConfig
from embodied_rm.types import Episode

TEACH_DIR = "teach"  # folder of the rounds in the run folder of a refinement
EPISODES_DIR, TAUGHT_DIR = "episodes", "taught"
"""In the folder of a round: the learner's episodes since the round before, and the model that pays from then on."""
MIN_EPISODES = 8  # of the learner, below which a round teaches nothing
EVAL_PERCENT = 20.0  # percent of a round's training between two evaluations on held-out episodes
LabelFn = Callable[[Episode], Episode | None]
"""Returns an episode with the progress and outcome to learn; None if they are not known, so that it is left out."""


@dataclass(frozen=True, kw_only=True)
class TeachConfig:
    """How a reward model goes on learning during a refinement."""

    every: int = 0  # iterations between two rounds of teaching; 0: the model stays as it is
    num_envs: int = 8  # environments whose episodes are recorded, the first ones
    frame_stride: int = 2  # control steps between two recorded frames
    data: Path | None = None
    """Dataset that each round learns from too, so that what is known is not forgotten; None: the learner's alone."""
    steps: int = 300  # optimizer steps of a round
    batch_size: int = 16  # episodes per step
    learning_rate: float = 5e-4
    held_out_share: float = 0.25  # share of all episodes, which decide whether the new weights are better
    max_episodes: int = 400  # latest episodes of the learner that a round uses

    def __post_init__(self) -> None:
        check_minimum(self, 0, "every", prefix="teach.")
        check_minimum(self, 1, "num_envs", "frame_stride", "steps", "batch_size", prefix="teach.")
        check_minimum(self, MIN_EPISODES, "max_episodes", prefix="teach.")
        if not 0 < self.held_out_share <= 0.5:
            raise UserError(f"teach.held_out_share must be in (0, 0.5], got {self.held_out_share}")
        if not self.learning_rate > 0:
            raise UserError(f"teach.learning_rate must be > 0, got {self.learning_rate}")
        if self.data is not None and not self.every:
            raise UserError("teach.data= needs teach.every=<iterations between two rounds>, at least 1")

    def success_frames(self, score_every: int, success_patience: int) -> int:
        """Return how many recorded frames the predictions of success span that end an episode of the learner."""
        return 1 + round((success_patience - 1) * score_every / self.frame_stride)

    @staticmethod
    def check_algorithm(algorithm: str) -> None:
        """Raise `UserError` if an algorithm learns from rewards of a model that has changed since."""
        if algorithm != "ppo":
            raise UserError(f"teach= changes rewards, and algorithm={algorithm} learns from old ones: use ppo")


def keep_labels(episode: Episode) -> Episode:
    """Return the episode with the progress and outcome that were recorded."""
    return episode


class Attempt(NamedTuple):
    """An episode of the learner."""

    round: int  # before which it was recorded
    is_held_out: bool
    episode: Episode


class Teacher:
    """Collects episodes of the learner, and teaches them to the reward model, round by round.

    Each round has a folder of its own. A refinement that is resumed there finds the rounds that are finished; episodes
    that were recorded since the last one are lost with an interrupted process.
    """

    def __init__(
        self,
        net: ProgressNet,
        config: TeachConfig,
        folder: Path,
        reporter: Reporter,
        *,
        own_data: Sequence[Episode] = (),
        label: LabelFn = keep_labels,
        patience: int = 1,
        seed: int = 0,
    ) -> None:
        """
        Args:
            net: The model to start from; it is not changed.
            config: Settings; `every` >= 1.
            folder: Of the rounds.
            reporter: Shows what is learned.
            own_data: Episodes that each round learns from too.
            label: Labels an episode before it is learned from.
            patience: Recorded frames in a row whose success ends an episode of the learner.
            seed: Of batches and augmentation.
        """
        assert config.every >= 1
        self.net, self.config, self.rounds = net, config, 0
        self._folder, self._reporter, self._own_data = folder, reporter, unique(own_data)
        self._label, self._patience, self._seed = label, patience, seed
        self._device = next(net.parameters()).device
        self._recorded: list[Episode] = []

    def record(self, envs: VectorEnv) -> VectorEnv:
        """Return the environments, of which some are recorded for the next round."""
        count, stride = self.config.num_envs, self.config.frame_stride
        return RecordEpisodes(envs, self.submit, num_recorded=count, frame_stride=stride)

    def submit(self, episode: Episode) -> None:
        """Take an episode of the learner."""
        self._recorded.append(episode)

    def model_at(self, iteration: int) -> ProgressNet:
        """Return the model that pays in an iteration, after all rounds that are due until then."""
        while (self.rounds + 1) * self.config.every <= iteration:
            self._teach(self.rounds + 1)
        return self.net

    def first_iteration(self, iteration: int) -> int:
        """Return the first iteration of the round that an iteration belongs to; before the first round, the next."""
        every = self.config.every
        return max(1, iteration // every) * every

    def _teach(self, number: int) -> None:
        """Teach one round, or read its result if it is finished."""
        run = RunFolder.open(self._folder / f"{number}", resume=True)
        self._store_episodes(run.path / EPISODES_DIR)
        self.rounds = number
        if (run.path / TAUGHT_DIR / MANIFEST_NAME).exists():
            self.net = load_progress_net(run.path / TAUGHT_DIR).to(self._device)
            return
        attempts = self._read_attempts(number)
        learned, held_out = self._split(attempts)
        if problem := find_problem(attempts, held_out):
            self._reporter.log(f"teaching {number}: no change, {problem}")
            return
        facts: dict[str, Any] = {"round": number, "attempts": len(attempts), "held_out_episodes": len(held_out)}
        curve = HeldOut(episodes=held_out, config=HeldOutConfig(eval_percent=EVAL_PERCENT))
        execution = Execution(device=self._device.type)
        train_args = (self._train_config(number), run, self._reporter, curve, self.net)
        net = train(repeat_rare_outcomes(learned), *train_args, execution=execution)
        summary = run.read_json(HELD_OUT_FILE)
        rows = {row["step"]: row["error"] for row in summary["curve"]}
        facts |= {"error_before": rows[0], "error_after": rows[summary["best_step"]]}
        if not summary["best_step"]:
            self._reporter.log(f"teaching {number}: no new weights were better on the held-out episodes")
            net = self.net
        latest = [attempt for attempt in attempts if attempt.round == number]
        unseen = [attempt.episode for attempt in latest if attempt.is_held_out or not summary["best_step"]]
        self.net = self._with_threshold(net, unseen if len(unseen) >= MIN_EPISODES else held_out)
        facts["success_threshold"] = self.net.config.success_threshold
        self._reporter.table(f"teaching {number}", facts)
        save_progress_net(run.path / TAUGHT_DIR, self.net, facts)
        run.write_json("metrics.json", {"teach": facts})

    def _with_threshold(self, net: ProgressNet, unseen: Sequence[Episode]) -> ProgressNet:
        """Return the model with the threshold of success at which it believes as many episodes as succeeded.

        Without a known outcome, earlier weights keep their threshold, and new ones have none.
        """
        predictions, labels = score_episodes(net, unseen), label_ground_truth(unseen)
        threshold = fit_episode_threshold(predictions, labels, self._patience)
        if net is not self.net:
            return net.with_calibration(None, None, None, threshold)
        return net if threshold is None else net.with_calibration(None, None, net.config.interval_scale, threshold)

    def _store_episodes(self, path: Path) -> None:
        """Write the episodes since the round before, labeled, unless they are stored already."""
        if not path.exists():
            labeled = [episode for episode in map(self._label, self._recorded) if episode is not None]
            if labeled:
                with DatasetWriter(path) as writer:
                    for episode in labeled:
                        writer.add(episode)
        self._recorded = []

    def _read_attempts(self, number: int) -> list[Attempt]:
        """Return the learner's latest episodes of the rounds until this one, each once, in order."""
        attempts: dict[str, Attempt] = {}
        paths = {i: self._folder / f"{i}" / EPISODES_DIR for i in range(number, 0, -1)}
        for round_number, source in ((i, LeRobotDataset(path)) for i, path in paths.items() if path.exists()):
            for row in reversed(range(len(source.meta))):
                if len(attempts) == self.config.max_episodes:
                    break
                stored = source.episode(row)
                episode = replace(stored, name=f"round {round_number}, {stored.name}")
                attempt = Attempt(round_number, self._is_held_out(row), episode)
                attempts.setdefault(fingerprint(episode), attempt)
        return list(attempts.values())[::-1]

    def _split(self, attempts: Sequence[Attempt]) -> tuple[list[Episode], list[Episode]]:
        """Return the episodes to learn from, and those that are held out, of the learner and of the own data."""
        own = [(self._is_held_out(row), episode) for row, episode in enumerate(self._own_data)]
        marked = [*((attempt.is_held_out, attempt.episode) for attempt in attempts), *own]
        return [episode for held, episode in marked if not held], [episode for held, episode in marked if held]

    def _is_held_out(self, row: int) -> bool:
        """Return whether an episode is held out, in all rounds, by its place in its dataset: evenly spaced ones are."""
        every = round(1 / self.config.held_out_share)
        return row % every == every - 1

    def _train_config(self, number: int) -> TrainConfig:
        encoder, config = self.net.config.encoder, self.config
        return TrainConfig(
            image_size=encoder.image_size,
            train_encoder=encoder.trainable,
            fusion=self.net.config.fusion,
            steps=config.steps,
            batch_size=config.batch_size,
            learning_rate=config.learning_rate,
            seed=self._seed + number,
        )


def unique(episodes: Sequence[Episode]) -> list[Episode]:
    """Return the episodes without repetitions of the same frames."""
    return list({fingerprint(episode): episode for episode in episodes}.values())


def repeat_rare_outcomes(episodes: Sequence[Episode]) -> list[Episode]:
    """Return the episodes with successes, or failures, repeated until they are a third of both.

    A learner that the model deceives hardly succeeds. The probability of success would then be close to 0 everywhere,
    and the threshold that separates its episodes would be decided by noise.
    """
    successes = [episode for episode in episodes if episode.success]
    failures = [episode for episode in episodes if episode.success is False]
    rare, frequent = sorted((successes, failures), key=len)
    num_repeats = len(frequent) // (2 * len(rare)) - 1 if rare else 0
    return [*episodes, *rare * max(0, num_repeats)]


def find_problem(attempts: Sequence[Attempt], held_out: Sequence[Episode]) -> str | None:
    """Return why a round cannot teach; None if it can. Weights differ in quality on successes or known progress."""
    if len(attempts) < MIN_EPISODES:
        return f"the learner has finished {len(attempts)} episodes, fewer than {MIN_EPISODES}"
    if not any(label.outcome or label.is_progress_known for label in label_ground_truth(held_out)):
        return "no held-out episode is a success or has known progress: give successes as teach.data"
    return None
