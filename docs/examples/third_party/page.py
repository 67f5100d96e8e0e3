"""Write the stored results as a page, docs/results/third_party.md: python page.py"""

from __future__ import annotations

from statistics import mean

from run import (
    NUM_CLONED,
    NUM_DEMONSTRATIONS,
    NUM_EVAL_EPISODES,
    NUM_HELD_OUT,
    PAGE,
    model_cell,
    policy_cell,
    policy_settings,
    settings_of,
)

from embodied_rm.experiments.results_cache import ResultsCache, open_results_cache

SEEDS = range(3)

NAMES = {
    "so101": "SO-101, pick a cube (`lerobot-env-so101`)",
    "lift": "robosuite `Lift`",
    "door": "robosuite `Door`",
}
HEADER = f"""# SO-101, and Lift and Door of robosuite

`docs/examples/third_party`: a reward model from video, and policies that were refined on it. The world's own success
evaluates both. Each number is of one run.

## Reward model

The bundled model continues on 1 or {NUM_DEMONSTRATIONS} demonstrations. {NUM_HELD_OUT} held-out successes and
{NUM_HELD_OUT} failures are separated by the predicted success of the last frame. Recall and false positives are those
of the threshold 0.5.

| world | demonstrations | AUC of success | recall | false positives |
|---|---|---|---|---|
"""
REFINED = f"""
## Refined policies

Training sees the model's progress and success of {NUM_DEMONSTRATIONS} demonstrations, never the world's. Success of
{NUM_EVAL_EPISODES} episodes.

| world | demonstrations of the policy | seed | cloned | refined | difference |
|---|---|---|---|---|---|
"""


def model_rows(cache: ResultsCache) -> list[str]:
    """Return the rows of the reward models that were measured."""
    rows = []
    for world, name in NAMES.items():
        for number in (1, NUM_DEMONSTRATIONS):
            values = cache.read(model_cell(world, number), settings_of(world, model=number))
            if values is not None:
                numbers = " | ".join(f"{values[key]:.3f}" for key in ("success_auc", "recall", "false_positives"))
                rows.append(f"| {name} | {number} | {numbers} |")
    return rows


def policy_rows(cache: ResultsCache) -> list[str]:
    """Return the rows of the policies that were measured, with a mean per world."""
    rows = []
    for world, name in NAMES.items():
        results = {str(seed): cache.read(policy_cell(world, seed), policy_settings(world, seed)) for seed in SEEDS}
        pairs = {
            seed: (values["cloned_success"]["rate"], values["refined_success"]["rate"])
            for seed, values in results.items()
            if values is not None
        }
        if len(pairs) > 1:
            pairs["mean"] = (
                mean(cloned for cloned, _ in pairs.values()),
                mean(refined for _, refined in pairs.values()),
            )
        rows += [
            f"| {name} | {NUM_CLONED[world]} | {seed} | {cloned:.3f} | {refined:.3f} | {refined - cloned:+.3f} |"
            for seed, (cloned, refined) in pairs.items()
        ]
    return rows


def main() -> None:
    """Write the page."""
    cache = open_results_cache(PAGE)
    PAGE.write_text(HEADER + "\n".join([*model_rows(cache), REFINED.rstrip("\n"), *policy_rows(cache)]) + "\n")


if __name__ == "__main__":
    main()
