"""Front matter of model cards: the YAML head from which the Hugging Face Hub indexes a model."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from typing import Any

import yaml

LIBRARY_NAME, TASK = "embodied_rm", "robotics"  # the hub has no narrower task for reward models
TAGS = ("reward-model", "robotics")
LICENSE = "apache-2.0"  # of the bundled models; only the owner of another model knows its license


def front_matter(
    *,
    tags: Sequence[str] = (),
    license_id: str | None = None,
    datasets: Sequence[str] = (),
    results: Sequence[Mapping[str, Any]] = (),
) -> str:
    """Return the head of a card.

    Args:
        tags: Tags besides those of every reward model.
        license_id: License as the hub names it. None: not stated.
        datasets: Training datasets on the hub, `owner/name`.
        results: The evaluation, of `evaluation_result`, one per dataset.

    Returns:
        YAML between two lines of dashes, without what is empty.
    """
    head: dict[str, Any] = {"library_name": LIBRARY_NAME, "pipeline_tag": TASK, "tags": [*TAGS, *tags]}
    head |= {} if license_id is None else {"license": license_id}
    head |= {"datasets": list(datasets)} if datasets else {}
    if results:
        metrics = dict.fromkeys(metric["type"] for result in results for metric in result["metrics"])
        head |= {"metrics": list(metrics), "model-index": [{"name": "reward model", "results": list(results)}]}
    return f"---\n{yaml.safe_dump(head, sort_keys=False, allow_unicode=True)}---\n"


def evaluation_result(dataset: str, metrics: Mapping[str, float], names: Mapping[str, str]) -> dict[str, Any]:
    """Return one entry of the model index.

    Args:
        dataset: Name of the evaluation data.
        metrics: Metric -> measured value.
        names: Metric -> its name on the card. Others are left out, and so are metrics that no episode defines (NaN).

    Returns:
        Task, dataset and metrics as the hub reads them, values with the three decimals of the card.
    """
    cells = [
        {"type": to_identifier(metric), "name": name, "value": round(metrics[metric], 3)}
        for metric, name in names.items()
        if math.isfinite(metrics.get(metric, math.nan))
    ]
    return {
        "task": {"type": TASK, "name": "progress and success of videos"},
        "dataset": {"type": to_identifier(dataset), "name": dataset},
        "metrics": cells,
    }


def to_identifier(name: str) -> str:
    """Return a name as the hub writes identifiers: without spaces and punctuation."""
    return re.sub(r"\W+", "-", name).lower()


def has_front_matter(card: str) -> bool:
    """Whether a card has a head already."""
    return re.match(r"---\r?\n.*?^---\r?\n", card, flags=re.DOTALL | re.MULTILINE) is not None
