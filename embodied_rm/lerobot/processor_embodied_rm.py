"""Processors around the reward model in LeRobot."""

from typing import Any

from lerobot.processor import (
    AddBatchDimensionProcessorStep,
    DeviceProcessorStep,
    PolicyProcessorPipeline,
    RenameObservationsProcessorStep,
    policy_action_to_transition,
)

from embodied_rm.lerobot.configuration_embodied_rm import EmbodiedRMConfig


def make_embodied_rm_pre_post_processors(
    config: EmbodiedRMConfig, dataset_stats: dict[str, dict[str, Any]] | None = None
) -> tuple[PolicyProcessorPipeline[Any, Any], PolicyProcessorPipeline[Any, Any]]:
    """Return the processors of batches, which renames images, and of outputs, which changes nothing.

    The model scales its images itself, so `dataset_stats` are not used.
    """
    steps = [
        RenameObservationsProcessorStep(rename_map=config.rename_map),
        AddBatchDimensionProcessorStep(),
        DeviceProcessorStep(device=config.device),
    ]
    return PolicyProcessorPipeline(steps=steps), PolicyProcessorPipeline(to_transition=policy_action_to_transition)
