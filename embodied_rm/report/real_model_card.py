"""Card of the bundled model of real robots, generated from its metrics."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from embodied_rm.report.front_matter import LICENSE, evaluation_result, front_matter
from embodied_rm.report.markdown import markdown_table

DESCRIPTIONS = {
    "order": "order of a video (VOC)",
    "reversed": "the same, backward",
    "undone": "the way back of a video that is played forward and then backward",
    "second attempt": "a whole video after its own first half and the way back",
    "whole above half": "end of a video above the end of another one's half (AUC)",
    "whole above its own half": "end of a video above the end of its own half",
    "right sentence above wrong": "end of a video above the end of another one under a wrong sentence (AUC)",
    "right sentence above wrong, same video": "end of a video above its own end under a wrong sentence",
    "out of distribution": "frames out of distribution",
}


def real_model_card(metrics: Mapping[str, Any]) -> str:
    """Return the card as Markdown, from the metrics of `embodied-rm train real`."""
    scores, labs, episodes = metrics["scores"], metrics["labs"], metrics["episodes"]
    parts = list(scores)
    keys = [*DESCRIPTIONS, *(key for key in scores[parts[0]] if key.startswith("done: "))]
    rows = [
        (DESCRIPTIONS.get(key, f"predicted {key}"), *(f"{scores[part][key]:.3f}" for part in parts)) for key in keys
    ]
    audits = metrics["audit"]
    case_rows = [
        (f"`{case}`", entry["expected"], *(audit_cell(audits[part].get(case)) for part in parts))
        for case, entry in audits[parts[0]].items()
    ]
    headers = [f"{', '.join(labs[part])} ({part}, {episodes[part]} episodes)" for part in parts]
    results = [
        evaluation_result(f"DROID, {', '.join(labs[part])}, {part}", scores[part], DESCRIPTIONS) for part in parts
    ]
    return "\n".join([
        front_matter(tags=["zero_shot", "franka"], license_id=LICENSE, results=results),
        "# Reward model of real robots",
        "",
        "Progress of a video and an instruction that it never saw; no demonstration. Built by `make checkpoint-real`,",
        "which also generated this card.",
        "",
        "## Data",
        "",
        f"{episodes['train']} teleoperated episodes of DROID, one exterior view: {', '.join(labs['train'])}. "
        "One robot, a Franka arm.",
        f"{metrics['parameters']:,} trained parameters. The frozen encoders {metrics['encoder']} and minilm are not in "
        "this folder.",
        "",
        *loss_section(metrics["held_out_loss"]),
        "## Labs that it was never trained on",
        "",
        *markdown_table(("figure", *headers), rows),
        "",
        "Settings and calibration were chosen on the validation labs. Wrong sentences are instructions of other "
        "episodes of the same lab, with another verb or another object. `done: <case>` is the fraction of videos that "
        "are predicted done at some frame.",
        "",
        "## Audit",
        "",
        "The cases that episodes without annotation allow, with their number of trials (docs/audit.md):",
        "",
        *markdown_table(("case", "expected", *(", ".join(labs[part]) for part in parts)), case_rows),
        "",
        "## Limits",
        "",
        "It recognizes objects that a sentence names, and hardly what is done with them. Do not end episodes by its "
        "success where a false one costs something; a demonstration in context is more exact (docs/real_robots.md).",
        "",
    ])  # fmt: skip


def loss_section(losses: Mapping[str, tuple[float, float]]) -> list[str]:
    """Return the lines on the losses of each net; none if they are not known."""
    if not losses:
        return []
    rows = [(net, f"{first:.3f}", f"{last:.3f}") for net, (first, last) in sorted(losses.items())]
    header = ("net", "loss on the validation labs after one update", "at the end")
    return ["## Training", "", *markdown_table(header, rows), ""]


def audit_cell(entry: Mapping[str, Any] | None) -> str:
    """Format the result of a case of the audit; None: it had no data."""
    if entry is None:
        return "-"
    status = {True: "passed", False: "failed", None: "for comparison"}[entry["passed"]]
    return f"{entry['value']:.3f} ({entry['num_trials']} trials), {status}"
