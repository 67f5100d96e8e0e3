"""`score_corpus`: score the missing shards of a corpus and merge all shards."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from importlib.metadata import version

from embodied_rm.data.source import EpisodeSource, find_index
from embodied_rm.errors import DataError, UserError
from embodied_rm.models.reward_model import DescribedRewardModel
from embodied_rm.run_folder import Reporter, RunFolder
from embodied_rm.score.engines import run_engine
from embodied_rm.score.job import ScoreJob
from embodied_rm.score.results import CorpusScores
from embodied_rm.score.score_config import LOCAL_ENGINE, ScoreConfig
from embodied_rm.score.scorer import Scorer
from embodied_rm.score.shards import Shard, ShardMetadata, check_same_inputs, make_shards, read_shard_metadata
from embodied_rm.score.write_scores import TABLE_FILE, write_table
from embodied_rm.types import Episode, RewardOutput


def score(
    model: DescribedRewardModel,
    source: EpisodeSource,
    config: ScoreConfig,
    run: RunFolder,
    reporter: Reporter,
    goal: Episode | None = None,
    reference: Episode | None = None,
) -> Mapping[int, RewardOutput]:
    """Score episodes in this process, as `score_corpus`, and return row of the source -> prediction of its frames.

    It cannot be resumed, because the digest of the model is unknown: a run folder with shards raises `UserError`.
    """
    if config.engine != LOCAL_ENGINE or config.num_workers > 1:
        raise UserError("score runs in this process; use score_corpus for other engines or more workers")
    scorer = Scorer(model=model, goal=goal, reference=reference)
    return score_corpus(lambda: scorer, source, config, run, reporter, None).predictions


def score_corpus(
    scorer_factory: Callable[[], Scorer],
    source: EpisodeSource,
    config: ScoreConfig,
    run: RunFolder,
    reporter: Reporter,
    input_digests: Mapping[str, str] | None,
    num_gpus: int = 0,
) -> CorpusScores:
    """Score episodes of a source. Write shards, plots and videos, and finally the table of all episodes.

    Existing shards are not scored again. Episodes that cannot be decoded completely are left out.

    Args:
        scorer_factory: Loads the model. Every worker calls it, so it must be picklable for several workers.
        source: The recordings.
        config: See `ScoreConfig`.
        run: The run folder.
        reporter: Shows the progress.
        input_digests: Name -> digest of everything that determines the scores of the model, e.g. "model".
            None: unknown, so existing shards are rejected.
        num_gpus: GPUs per Ray actor.

    Raises:
        UserError: An episode does not exist, no view is the model's, or an existing shard has other inputs.
        DataError: No episode can be read.
    """
    rows = tuple(find_index(source, number) for number in dict.fromkeys(config.episode_indices))
    shards = make_shards(rows or tuple(range(len(source))), config.shard_episodes)
    job = ScoreJob(
        scorer_factory=scorer_factory,
        source=source,
        config=config,
        run_dir=run.path,
        input_digests={**(input_digests or {}), "settings": settings_digest(config), "version": version("embodied-rm")},
        num_gpus=num_gpus,
    )
    existing = [shard for shard in shards if shard.path(run.path).exists()]
    if existing and input_digests is None:
        raise UserError(f"{existing[0].path(run.path)}: already exists, and the model that wrote it is unknown")
    for shard in reporter.track(existing, "check shards"):
        path = shard.path(run.path)
        check_same_inputs(path, read_shard_metadata(path), job.shard_digests(shard))
    if missing_shards := sorted({*shards} - {*existing}, key=lambda shard: shard.number):
        for _ in run_engine(job, missing_shards, reporter):
            pass
    metadata = [read_shard_metadata(shard.path(run.path)) for shard in shards]
    return write_results(run, shards, metadata)


def settings_digest(config: ScoreConfig) -> str:
    """Return the SHA-256 of the settings that affect the output of an episode."""
    return hashlib.sha256(json.dumps(config.output_settings(), sort_keys=True).encode()).hexdigest()


def write_results(run: RunFolder, shards: Sequence[Shard], metadata: Sequence[ShardMetadata]) -> CorpusScores:
    """Write the table of all episodes, in the order of the source."""
    corpus_scores = CorpusScores.from_shards(run.path, shards, metadata)
    if not corpus_scores.predictions:
        raise DataError(f"no episode can be read: {corpus_scores.issues[0]}")
    write_table(
        run.file_path(TABLE_FILE), (corpus_scores.predictions.table(row) for row in sorted(corpus_scores.predictions))
    )
    return corpus_scores
