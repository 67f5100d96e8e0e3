"""`score`: shards that are missing are scored, then put together."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from importlib.metadata import version

from embodied_rm.data.source import EpisodeSource, row_of
from embodied_rm.errors import DataError, UserError
from embodied_rm.models.base import Judge
from embodied_rm.run import Reporter, RunFolder
from embodied_rm.score.config import LOCAL, ScoreConfig
from embodied_rm.score.engines import finished
from embodied_rm.score.job import Job
from embodied_rm.score.scored import Scored
from embodied_rm.score.scorer import Scorer
from embodied_rm.score.shards import Shard, Told, read_told, refuse_other, shards_of
from embodied_rm.score.table import TABLE, write_table
from embodied_rm.types import Episode, Progress


def score(
    model: Judge,
    source: EpisodeSource,
    config: ScoreConfig,
    run: RunFolder,
    reporter: Reporter,
    goal: Episode | None = None,
    reference: Episode | None = None,
) -> Mapping[int, Progress]:
    """Score episodes of a source in this process; row of the source -> judgement of its frames.

    The last frame of `goal` shows how what is asked for looks when done, `reference` how it was done another time.
    As `score_corpus`, but nobody says what the model is: a folder that holds shards already is refused.
    """
    if config.engine != LOCAL or config.workers > 1:
        raise UserError("score works in this process: score_corpus is for other engines, and for more workers")
    scorer = Scorer(model=model, goal=goal, reference=reference)
    return score_corpus(lambda: scorer, source, config, run, reporter, None).curves


def score_corpus(
    opener: Callable[[], Scorer],
    source: EpisodeSource,
    config: ScoreConfig,
    run: RunFolder,
    reporter: Reporter,
    made_of: Mapping[str, str] | None,
    gpus: int = 0,
) -> Scored:
    """Score episodes of a source; writes shards, plots and videos, and at the end the table of all.

    Shards that are there already are not scored again. `made_of`: whatever decides how the model of `opener` judges,
    e.g. {"model": its digest}; None: nobody knows. Every worker opens the model; those of other processes get `opener`
    by pickle, so that it must be a function of a module. `gpus`: how many each actor of Ray is given. An episode that
    cannot be decoded to its end is left out.

    Raises `UserError` when an episode does not exist, the source has none of the model's views or a shard was made of
    something else, `DataError` when no episode is left.
    """
    asked = tuple(row_of(source, number) for number in dict.fromkeys(config.episodes))
    shards = shards_of(asked or tuple(range(len(source))), config.shard_episodes)
    job = Job(
        opener=opener,
        source=source,
        config=config,
        run=run.path,
        made_of={**(made_of or {}), "settings": settings(config), "version": version("embodied-rm")},
        gpus=gpus,
    )
    there = [shard for shard in shards if shard.path(run.path).exists()]
    if there and made_of is None:
        raise UserError(f"{there[0].path(run.path)}: is there already, and nobody says what model made it")
    for shard in reporter.track(there, "check shards"):
        path = shard.path(run.path)
        refuse_other(path, read_told(path), job.made(shard))
    if missing := sorted({*shards} - {*there}, key=lambda shard: shard.number):
        for _ in finished(job, missing, reporter):
            pass
    told = [read_told(shard.path(run.path)) for shard in shards]
    return joined(run, shards, told)


def settings(config: ScoreConfig) -> str:
    """SHA-256 of all settings that decide what is written of an episode."""
    return hashlib.sha256(json.dumps(config.settings(), sort_keys=True).encode()).hexdigest()


def joined(run: RunFolder, shards: Sequence[Shard], told: Sequence[Told]) -> Scored:
    """Write the table of all episodes, in the order of the source. Raises `DataError` when there are none."""
    scored = Scored.of(run.path, shards, told)
    if not scored.curves:
        raise DataError(f"no episode can be read: {scored.faults[0]}")
    write_table(run.file(TABLE), (scored.curves.table(row) for row in sorted(scored.curves)))
    return scored
