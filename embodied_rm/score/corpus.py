"""`score_corpus`: score the missing shards of a corpus and merge all shards."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from importlib.metadata import version

from embodied_rm.data.source import EpisodeSource, find_index
from embodied_rm.errors import DataError, UserError
from embodied_rm.models.reward_model import DescribedRewardModel
from embodied_rm.run_folder import Reporter, RunFolder
from embodied_rm.score.engines.processes import score_in_processes
from embodied_rm.score.engines.ray_actors import score_with_ray
from embodied_rm.score.job import ScoreJob, score_in_process
from embodied_rm.score.score_config import LOCAL_ENGINE, RAY_ENGINE, ScoreConfig
from embodied_rm.score.scorer import Scorer
from embodied_rm.score.shards import CorpusScores, Shard, check_same_inputs, make_shards, read_shard_metadata
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
        input_digests: Name -> digest of everything that determines the scores of the model, e.g. "model".
            None: unknown, so existing shards are rejected.
        num_gpus: GPUs per Ray actor.

    Raises:
        UserError: An episode does not exist, no view is the model's, or an existing shard has other inputs.
        DataError: No episode can be read.
    """
    rows = tuple(find_index(source, number) for number in dict.fromkeys(config.episode_indices))
    shards = make_shards(rows or tuple(range(len(source))), config.shard_episodes)
    digests = {**(input_digests or {}), "settings": config.output_digest(), "version": version("embodied-rm")}
    job = ScoreJob(
        scorer_factory=scorer_factory,
        source=source,
        config=config,
        run_dir=run.path,
        input_digests=digests,
        num_gpus=num_gpus,
    )
    existing = [shard for shard in shards if shard.path(run.path).exists()]
    if existing and input_digests is None:
        raise UserError(f"{existing[0].path(run.path)}: already exists, and the model that wrote it is unknown")
    for shard in reporter.track(existing, "check shards"):
        path = shard.path(run.path)
        check_same_inputs(path, read_shard_metadata(path), job.shard_digests(shard))
    existing_numbers = {shard.number for shard in existing}
    if missing_shards := [shard for shard in shards if shard.number not in existing_numbers]:
        for _ in run_engine(job, missing_shards, reporter):
            pass
    metadata = [read_shard_metadata(shard.path(run.path)) for shard in shards]
    results = CorpusScores.from_shards(run.path, shards, metadata)
    if not results.predictions:
        raise DataError(f"no episode can be read: {results.issues[0]}")
    write_table(run.file_path(TABLE_FILE), (results.predictions.table(row) for row in sorted(results.predictions)))
    return results


def run_engine(job: ScoreJob, shards: Sequence[Shard], reporter: Reporter) -> Iterator[Shard]:
    """Score shards with the configured engine, and yield each after it is stored, in any order."""
    if job.config.engine == RAY_ENGINE:
        return reporter.track(score_with_ray(job, shards), "score shards", len(shards))
    if job.config.num_workers > 1:
        return reporter.track(score_in_processes(job, shards), "score shards", len(shards))
    return score_in_process(job, shards, reporter)
