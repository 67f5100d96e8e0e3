"""`embodied-rm prefer`: compare clips of a dataset, by a judge or a person, for the labeling scheme `compared`."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from embodied_rm.annotate.comparison_server import ComparisonServer
from embodied_rm.annotate.comparison_session import ComparisonSession
from embodied_rm.command import Command
from embodied_rm.data.feature_map import FeatureMap
from embodied_rm.data.load_dataset import load_dataset
from embodied_rm.data.source import EpisodeColumns, EpisodeMeta, EpisodeSource
from embodied_rm.errors import UserError, check_minimum
from embodied_rm.labels.comparisons import ClipComparison, draw_clip_pairs
from embodied_rm.labels.subtasks import goal_of
from embodied_rm.models.judges.clip_comparison import VlmClipJudge
from embodied_rm.models.judges.judge_config import LOGPROB_ANSWERS, JudgeConfig
from embodied_rm.run_folder import Reporter, RunFolder
from embodied_rm.score.compare_clips import CompareFn, compare_clips, judge_comparer
from embodied_rm.score.ranked_factors import RankedFactor, RecordedFacts, ranked_comparer


@dataclass(frozen=True, kw_only=True)
class PreferCommand:
    """Config of `prefer`."""

    data: Path
    judge: JudgeConfig = field(default_factory=JudgeConfig)
    person: bool = False
    port: int = 0
    num_pairs: int = 500
    clip_share: float = 0.25
    factors: tuple[str, ...] = ("progress",)
    flip_rate: float = 0.0
    seed: int = 0
    instruction: str | None = None
    features: FeatureMap = field(default_factory=FeatureMap)

    def __post_init__(self) -> None:
        check_minimum(self, 1, "num_pairs")
        if not 0 < self.clip_share <= 1:
            raise UserError(f"clip_share must be in (0, 1], got {self.clip_share}")
        if not 0 <= self.flip_rate <= 1:
            raise UserError(f"flip_rate must be in [0, 1], got {self.flip_rate}")
        if self.person and self.judge.type is not None:
            raise UserError(f"person=true and judge={self.judge.type} both answer: leave one of them out")
        if self.clip_share < 1 and "success" in {factor.name for factor in self.ranked_factors}:
            raise UserError("the factor success compares whole episodes: set clip_share=1")
        if not self.ranked_factors:
            raise UserError("factors=[] compares nothing: name at least one")
        answering = "person" if self.person else "judge" if self.judge.type is not None else None
        if self.flip_rate and answering:
            raise UserError(f"flip_rate={self.flip_rate} changes answers by recorded factors: leave {answering}= out")
        if answering and self.factors != PreferCommand.factors:
            factors = ",".join(self.factors)
            raise UserError(f"factors=[{factors}] compare without {answering}=: leave one of them out")
        if self.port and not self.person:
            raise UserError(f"port={self.port} is that of the page of person=true: leave it out")

    @property
    def ranked_factors(self) -> tuple[RankedFactor, ...]:
        """What compares without a judge, from the most important factor."""
        return tuple(map(RankedFactor.parse, self.factors))

    @property
    def answered_by(self) -> str:
        """Description of the judge."""
        if self.person:
            return "a person"
        return (
            f"recorded {', then '.join(self.factors)}"
            if self.judge.type is None
            else f"{self.judge.folder or self.judge.model}"
        )


def main(config: PreferCommand, run: RunFolder, reporter: Reporter) -> None:
    """Draw pairs, compare them, and write the table and the counts."""
    if config.judge.type is not None:
        if config.judge.type != "question":
            raise UserError(f"judge={config.judge.type} cannot compare clips: use judge=question, or leave judge= out")
        config.judge.check_location()
        check_asks_about_clips(config.judge)
    source = load_dataset(config.data, reporter, config.instruction, config.features)
    goals = {meta.name: goal_of(meta) for meta in source.meta}
    pairs = draw_clip_pairs(goals, config.num_pairs, config.clip_share, config.seed)
    reporter.table("prefer", {"episodes": len(goals), "pairs": len(pairs), "judge": config.answered_by})
    if config.person:
        counts = ask_person(config, source, pairs, run, reporter)
    else:
        counts = compare_clips(pairs, make_comparer(config, source, reporter), run.path, reporter)
    decided = counts["first"] + counts["second"]
    metrics = {"pairs": len(pairs), "decided": decided, **{name: counts[name] for name in UNDECIDED_ANSWERS}}
    reporter.table("answers", metrics)
    if config.person and counts["unanswered"]:
        reporter.log("not finished: resume=true asks for the other answers")
        return
    run.write_json("metrics.json", {"prefer": metrics})


UNDECIDED_ANSWERS = ("neither", "contradiction", "unanswered")


def ask_person(
    config: PreferCommand, source: EpisodeSource, pairs: Sequence[ClipComparison], run: RunFolder, reporter: Reporter
) -> Counter[str]:
    """Serve the page of the comparisons until Ctrl-C, and return how often each answer was given."""
    session = ComparisonSession(source, pairs, run.path, config.seed)
    with ComparisonServer(session, config.port) as server:
        reporter.log(f"open {server.url} in a browser; Ctrl-C ends")
        server.serve_until_interrupt()
        session.close()
    return session.counts()


def make_comparer(config: PreferCommand, source: EpisodeSource, reporter: Reporter) -> CompareFn:
    """Return the function that compares pairs: the judge, or what was recorded without one."""
    if config.judge.type is None:
        tracked = reporter.track(enumerate(source.meta), "read columns", total=len(source.meta))
        recorded = {meta.name: recorded_facts(meta, source.columns(row)) for row, meta in tracked}
        return ranked_comparer(recorded, config.ranked_factors, config.flip_rate, config.seed)
    from embodied_rm.models.judges.factory import make_chat  # by transformers, which takes a second to import

    judge = VlmClipJudge(make_chat(config.judge), use_logprobs=config.judge.answer_mode == LOGPROB_ANSWERS)
    size = (config.judge.image_size[0], config.judge.image_size[1]) if config.judge.image_size else None
    return judge_comparer(judge, source, config.judge.views, size)


def check_asks_about_clips(judge: JudgeConfig) -> None:
    """Raise `UserError` for settings of questions about one episode: the question about two clips has none of them."""
    names = ("readings", "frames", "goal_images", *(() if judge.answer_mode == LOGPROB_ANSWERS else ("question",)))
    for name in names:
        if getattr(judge, name) != getattr(JudgeConfig, name):
            raise UserError(f"judge.{name}= is of questions about one episode, and prefer compares two: leave it out")


def recorded_facts(meta: EpisodeMeta, columns: EpisodeColumns) -> RecordedFacts:
    """Return what was recorded of an episode."""
    return RecordedFacts(length=meta.length, progress=columns.progress, action=columns.action, success=meta.success)


COMMAND = Command(resumable=True, schema=PreferCommand, main=main)
