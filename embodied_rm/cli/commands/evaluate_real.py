"""`embodied-rm evaluate real`: a demonstration in context, and the zero-shot model, on recordings of real robots."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import fmean

import numpy as np

from embodied_rm.api.demonstration_reward_model import FLOAT32, check_precision, open_direction_net
from embodied_rm.command import Command
from embodied_rm.data.feature_map import DEFAULT_FEATURE_MAP
from embodied_rm.data.lab_split import LabSplit
from embodied_rm.errors import UserError
from embodied_rm.experiments.load import load_model_or_judge, load_videos
from embodied_rm.experiments.real_evaluation.pair_scores import MODEL, PairScores, demonstrations, score_pairs
from embodied_rm.experiments.real_evaluation.real_sets import RealSet, read_real_set
from embodied_rm.experiments.real_evaluation.zero_shot_scores import measure_zero_shot, rows_to_judge
from embodied_rm.experiments.results_page import write_results
from embodied_rm.metrics import roc_auc
from embodied_rm.models.clip_similarity import ClipSimilarity
from embodied_rm.models.in_context.frozen_encoder import open_frozen_encoder
from embodied_rm.models.in_context.quantized_encoder import quantize_encoder
from embodied_rm.models.pretrained_weights import EFFICIENTNET_LITE0
from embodied_rm.models.reward_model import DescribedRewardModel
from embodied_rm.paths import REAL_CHECKPOINT, resolve_reward_model
from embodied_rm.report.markdown import markdown_table
from embodied_rm.run_folder import Reporter, RunFolder
from embodied_rm.types import Episode, Frames

CLIP_SUFFIX = ", CLIP"  # of the columns of the CLIP baseline
MAX_OTHER_TASKS = 4  # videos of other tasks that each demonstration meets


@dataclass(frozen=True, kw_only=True)
class EvaluateRealConfig:
    """Config of `evaluate real`."""

    data: Path = Path("../shared/data")
    sets: tuple[str, ...] = ("real_bimanual", "bridge_rollouts", "g1_bottle")
    groups: tuple[str, ...] = (
        "g1_bottle/episode_000003+episode_000004+episode_000006+episode_000007",
        "g1_bottle/episode_000000+episode_000002",
        "g1_bottle/episode_000001+episode_000005",
    )
    encoder: str = EFFICIENTNET_LITE0.name
    precision: str = FLOAT32
    checkpoint: Path = Path(REAL_CHECKPOINT.name)
    zero_shot_sets: tuple[str, ...] | None = None
    labs: LabSplit = field(default_factory=LabSplit)
    clip_baseline: str | None = None
    results_page: Path | None = None

    def __post_init__(self) -> None:
        check_precision(self.precision)
        if self.clip_baseline is not None and self.zero_shot_sets == ():
            raise UserError("clip_baseline is scored on zero_shot_sets, and there are none: leave one of them out")
        for group in self.groups:
            if group.count("/") != 1 or len(group.partition("/")[2].split("+")) < 2:
                raise UserError(f"a group is written <set>/<episode>+<episode>, got {group}")

    @property
    def zero_shot_names(self) -> tuple[str, ...]:
        """Names of the sets that are scored without a demonstration."""
        if self.zero_shot_sets is not None:
            return self.zero_shot_sets
        return (*(("droid",) if (self.data / "droid").is_dir() else ()), *self.sets)

    def check_folders(self) -> None:
        """Raise `UserError` for a set or a model that does not exist."""
        for name in (*self.sets, *self.zero_shot_names):
            if not (self.data / name).exists():
                raise UserError(f"there is no set {name} in {self.data}: name its sets by sets= and zero_shot_sets=")
        resolve_reward_model(self.checkpoint)

    def listed_groups(self, name: str) -> list[list[str]]:
        """Names of the episodes of each group that is listed for a set."""
        pairs = [group.split("/") for group in self.groups]
        return [episodes.split("+") for set_name, episodes in pairs if set_name == name]


def main(config: EvaluateRealConfig, run: RunFolder, reporter: Reporter) -> None:
    """Score all pairs of all sets; write metrics and, if set, the section of a results page."""
    config.check_folders()
    zero_shot_models, frozen = open_zero_shot_models(config), open_frozen_encoder(config.encoder)
    size, direction_net = frozen.image_size, open_direction_net(frozen, resolve_reward_model(config.checkpoint))
    if direction_net is None:
        reporter.log(f"without direction nets: checkpoint={config.checkpoint} has none over encoder={config.encoder}")
    real_sets = [read_real_set(config.data / name, size, config.listed_groups(name), reporter) for name in config.sets]
    results = {}
    for real_set in real_sets:
        other_tasks = find_other_tasks(real_set, real_sets)
        total = sum(1 for _ in demonstrations(real_set))
        encoder = frozen if config.precision == FLOAT32 else quantize_encoder(frozen, sample(real_set))
        pairs = score_pairs(real_set, encoder, direction_net, other_tasks)
        scores = list(reporter.track(pairs, f"score {real_set.name}", total=total))[-1]
        results[real_set.name] = summarize(scores)
        reporter.table(real_set.name, format_summary(results[real_set.name]))
    zero_shot = evaluate_zero_shot(config, zero_shot_models, reporter)
    methods = to_markdown(config, results, has_direction_nets=direction_net is not None)
    text = "\n".join([methods, *zero_shot_section(config, zero_shot)])
    metrics = {"sets": results, "zero_shot": zero_shot, "direction_nets": direction_net is not None}
    write_results(run, config.results_page, "evaluate real", metrics, text, "Real robots")


def open_zero_shot_models(config: EvaluateRealConfig) -> dict[str, DescribedRewardModel]:
    """Open the models that score without a demonstration: suffix of their columns -> model."""
    if not config.zero_shot_names:
        return {}
    models: dict[str, DescribedRewardModel] = {"": load_model_or_judge(config.checkpoint)[0]}
    if config.clip_baseline is not None:
        models[CLIP_SUFFIX] = ClipSimilarity(config.clip_baseline)
    return models


def evaluate_zero_shot(
    config: EvaluateRealConfig, models: Mapping[str, DescribedRewardModel], reporter: Reporter
) -> dict[str, dict[str, float]]:
    """Score the test episodes of each set by the models that read instructions."""
    results = {}
    for name in config.zero_shot_names:
        source = load_videos(config.data / name, reporter, None, DEFAULT_FEATURE_MAP)
        rows = rows_to_judge(source, config.labs)
        for label, model in models.items():
            results[name + label] = measure_zero_shot(model, source, rows, f"score {name}{label} zero-shot", reporter)
    return results


def zero_shot_section(config: EvaluateRealConfig, results: Mapping[str, Mapping[str, float]]) -> list[str]:
    """Return the section of the model that reads instructions."""
    metrics = list(dict.fromkeys(metric for scores in results.values() for metric in scores))
    rows = [
        (metric, *(f"{scores[metric]:.3f}" if metric in scores else "-" for scores in results.values()))
        for metric in metrics
    ]
    if not rows:
        return []
    return [
        "",
        "## Zero-shot",
        "",
        f"`checkpoint={config.checkpoint}`, on videos of labs and robots that it never saw, without a demonstration. "
        "Of DROID, the test labs of `configs/labs/droid.yaml`.",
        *([] if config.clip_baseline is None else ["CLIP: similarity of image and text, by `clip_baseline=`."]),
        "",
        *markdown_table(("figure", *results), rows),
    ]


def sample(real_set: RealSet) -> Frames:
    """Return images of the first demonstration of a set, from which an encoder of 8-bit integers takes its ranges."""
    _, demonstration = next(demonstrations(real_set))
    return np.concatenate(list(demonstration.views.values()))


def find_other_tasks(real_set: RealSet, real_sets: Sequence[RealSet]) -> list[Episode]:
    """Return videos of other tasks: of other groups of the set, and of other sets with as many views."""
    others = [real_set, *(other for other in real_sets if other is not real_set)]
    same = [other for other in others if len(other.views) == len(real_set.views)]
    episodes = [group[0] for other in same for group in other.groups]
    step = max(1, len(episodes) // (MAX_OTHER_TASKS + 1))
    return episodes[::step][: MAX_OTHER_TASKS + 1]


def summarize(scores: PairScores) -> dict[str, dict[str, float]]:
    """Return method -> {metric: value}; the cases that are predicted done are those of the model."""
    methods: dict[str, dict[str, float]] = {}
    for method in scores.above_failure:
        values = {
            "order": scores.order.get(method, []),
            "reversed": scores.reversed_order.get(method, []),
            "error": scores.error.get(method, []),
            "success above failure": scores.above_failure.get(method, []),
        }
        methods[method] = {name: fmean(entries) for name, entries in values.items() if entries}
    model = methods[MODEL]
    model |= {f"done: {case}": fmean(entries) for case, entries in scores.done.items()}
    if scores.undone_order:
        model |= {"undone": fmean(scores.undone_order), "second attempt": fmean(scores.retried_order)}
    if scores.whole_and_half:
        ends = np.array(scores.whole_and_half)
        positive = np.repeat([True, False], len(ends))
        model["whole above half"] = roc_auc(ends.T.ravel(), positive)
    model["pairs"] = len(scores.order.get(MODEL, []))
    model["seconds per minute of video"] = 60 * scores.seconds / scores.video_seconds
    return methods


def format_summary(methods: Mapping[str, Mapping[str, float]]) -> dict[str, str]:
    """Return the rows of the table on the terminal."""
    rows = {name: f"{value:.3f}" for name, value in methods[MODEL].items()}
    for method, values in methods.items():
        if method != MODEL:
            rows[method] = ", ".join(f"{name} {value:.3f}" for name, value in values.items())
    return rows


def to_markdown(
    config: EvaluateRealConfig, results: Mapping[str, Mapping[str, Mapping[str, float]]], *, has_direction_nets: bool
) -> str:
    """Return the results as Markdown: one table of methods, and one of videos that are predicted done."""
    metrics = ("order", "reversed", "error", "success above failure")
    rows = [
        (name, method, *(f"{values[metric]:.3f}" if metric in values else "-" for metric in metrics))
        for name, methods in results.items()
        for method, values in methods.items()
    ]
    done = sorted({key for methods in results.values() for key in methods[MODEL] if key.startswith("done: ")})
    others = ("undone", "second attempt", "whole above half", "seconds per minute of video", "pairs")
    case_rows = [
        (
            key.removeprefix("done: "),
            *(f"{methods[MODEL][key]:.3f}" if key in methods[MODEL] else "-" for methods in results.values()),
        )
        for key in (*done, *others)
    ]
    lines = [
        "## A demonstration in context",
        "",
        f"`embodied-rm evaluate real`: every success once as the only demonstration of each other episode of its task, "
        f"over {config.encoder} in {config.precision}{'' if has_direction_nets else ', without direction nets'}. "
        "Nothing is trained, but for the row that is adapted as `embodied-rm adapt real` does.",
        "",
        *markdown_table(("set", "method", *metrics), rows),
        "",
        "Fraction of videos that are predicted done at some frame; order of the way back, after the video, and of a "
        "second attempt, after half of it and the way back; AUC of whole videos against their halves; and cost:",
        "",
        *markdown_table(("video", *results), case_rows),
    ]
    return "\n".join(lines)


COMMAND = Command(schema=EvaluateRealConfig, main=main)
