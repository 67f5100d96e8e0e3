"""The objective of training as one number."""

from collections.abc import Mapping

import numpy as np
from torch import Tensor

from embodied_rm.labels.schemes import LabelScheme
from embodied_rm.training.batches import LabeledBatch
from embodied_rm.training.forward import TrainingOutputs
from embodied_rm.training.objective import all_loss_terms, sum_loss_terms


def objective(
    outputs: TrainingOutputs, batch: LabeledBatch, schemes: Mapping[str, LabelScheme], rng: np.random.Generator
) -> Tensor:
    """Return the sum of the objectives of the schemes."""
    return sum_loss_terms(all_loss_terms(outputs, batch, schemes, rng))
