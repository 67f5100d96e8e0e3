"""`embodied-rm clone`: behaviour cloning of one task's demonstrations, judged by the simulator."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path

from embodied_rm.cli.command import Command, narrow
from embodied_rm.cli.places import IMITATED, POLICY, dataset_in, reward_model_in
from embodied_rm.cli.worlds import WorldConfig, make_judge
from embodied_rm.data.lerobot.read import LeRobotDataset
from embodied_rm.data.source import EpisodeSource
from embodied_rm.errors import UserError, choices, lookup
from embodied_rm.models.checkpoint import digest_of, load_progress_net
from embodied_rm.models.fold import fold
from embodied_rm.models.progress_net import ProgressNet
from embodied_rm.rl.cloning.alignment import progress_weights
from embodied_rm.rl.cloning.bc import CloneConfig, choose, clone
from embodied_rm.rl.envs.seeing import as_seen
from embodied_rm.rl.learner.imitation import Pairs, pairs_of, save_pairs
from embodied_rm.rl.learner.policy import save_policy
from embodied_rm.run import Reporter, RunFolder
from embodied_rm.score import read_for
from embodied_rm.types import Episode
from sim.observation import PROPRIO
from sim.registry import make_task


@dataclass(frozen=True, kw_only=True)
class CloneCommand(CloneConfig):
    """Behaviour cloning of one task of a dataset."""

    task: str
    data: Path
    failures: bool = False
    aligned: bool = False
    checkpoint: Path | None = None
    horizon: int = 10
    episodes: int = 200
    world: WorldConfig = field(default_factory=WorldConfig)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.horizon < 1:
            raise UserError(f"horizon must be >= 1, got {self.horizon}")


def start(config: CloneCommand, run: RunFolder, reporter: Reporter) -> None:
    """Imitate, judge, and leave policy and metrics in the run folder."""
    task = make_task(config.task).name
    source = LeRobotDataset(dataset_in(config.data))
    rows = rows_of(source, task, failures=config.failures)
    seeing = config.sees != "state"
    model = reward_model_in(config.checkpoint) if config.aligned or seeing else None
    net = None if model is None else load_progress_net(model)
    judge = make_judge(
        config.task, config.world, episodes=config.episodes, seed=config.seed, sees=config.sees, eyes=net
    )
    chosen = [rows[i] for i in choose(len(rows), config)]
    reporter.table(
        "clone",
        {
            "task": task,
            "demonstrations": f"{len(chosen)} of {len(rows)}",
            "weights": f"by progress within {config.horizon} frames" if config.aligned else "all moments alike",
            "sees": config.sees,
            "policy": f"{config.hidden} hidden units, {config.steps} steps of {config.batch} transitions",
            "judged over": f"{config.episodes} episodes",
        },
    )
    pairs = pairs_in(read(source, chosen, net, reporter), net, config, reporter)
    save_pairs(run.path / IMITATED, pairs)
    digest = digest_of(model) if model is not None and seeing else ""
    lengths = PROPRIO if seeing else pairs.observation.shape[1]  # all that the simulator tells is in m
    views = config.world.views if seeing else ()
    policy, fit = clone(pairs, narrow(config, CloneConfig), digest, lengths, views)
    save_policy(run.path / POLICY, policy, task=task)
    verdict = judge(policy)
    reporter.table("cloned", {**asdict(fit), **verdict.as_dict()})
    run.write_json("metrics.json", {"clone": asdict(fit), "cloned_success": verdict.as_dict()})


def pairs_in(episodes: Sequence[Episode], net: ProgressNet | None, config: CloneCommand, reporter: Reporter) -> Pairs:
    """What of the demonstrations is imitated, as the policy will see it."""
    weights = None
    if net is not None and config.aligned:
        weights = progress_weights([curve.value for curve in fold(net, episodes)], config.horizon)
    if net is not None and config.sees != "state":
        shown = [with_views(episode, config.world.views) for episode in episodes]
        episodes = [as_seen(net, episode, PROPRIO) for episode in reporter.track(shown, "look at demonstrations")]
    return pairs_of(episodes, weights)


def with_views(episode: Episode, names: Sequence[str]) -> Episode:
    """The episode with these views alone: what the policy will have. Raises `UserError` for one that was not
    recorded."""
    what = "recorded view (world.views are what the policy sees)"
    return replace(episode, views={name: lookup(episode.views, name, what) for name in names})


def rows_of(data: EpisodeSource, task: str, *, failures: bool) -> list[int]:
    """The episodes of one task that succeeded, or with `failures` all. Raises `UserError` when the dataset has none."""
    tasks = {meta.text.get("task", "") for meta in data.meta} - {""}
    rows = [i for i, m in enumerate(data.meta) if m.text.get("task") == task and (failures or m.success)]
    if not rows:
        known = choices(task, tasks, "recorded task")
        raise UserError(f"the dataset has no successful episode of {task}" if task in tasks else known)
    return rows


def read(data: EpisodeSource, rows: Sequence[int], net: ProgressNet | None, reporter: Reporter) -> list[Episode]:
    """These episodes, with the views that the reward model sees; without one, states and actions are enough."""
    if net is not None:
        return list(reporter.track(read_for(net.sight, data, rows), "read demonstrations", total=len(rows)))
    # An episode cannot do without a view.
    return [data.episode(i, views=data.views[:1]) for i in reporter.track(rows, "read demonstrations")]


COMMAND = Command(schema=CloneCommand, start=start)
