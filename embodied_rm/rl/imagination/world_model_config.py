"""Settings of world models."""

from dataclasses import dataclass

from embodied_rm.errors import UserError, check_minimum


@dataclass(frozen=True, kw_only=True)
class WorldModelConfig:
    """Training of a world model on recorded episodes."""

    horizon: int = 5  # consecutive transitions that are predicted, H; also the actions of a chunk
    world_model_steps: int = 1500  # optimizer steps
    world_model_batch_size: int = 128  # windows of H transitions per batch
    world_model_learning_rate: float = 1e-3  # peak of a cosine schedule that ends at 0
    world_model_hidden_sizes: tuple[int, ...] = (128, 128)
    num_members: int = 3  # world models, whose disagreement tells what the recordings do not determine
    validation_share: float = 0.1  # share of the episodes that measures the prediction error and does not train

    def __post_init__(self) -> None:
        check_minimum(self, 1, "horizon", "world_model_steps", "world_model_batch_size", "num_members")
        if min(self.world_model_hidden_sizes, default=0) < 1:
            raise UserError(f"world_model_hidden_sizes must be >= 1, got {list(self.world_model_hidden_sizes)}")
        if not self.world_model_learning_rate > 0:
            raise UserError(f"world_model_learning_rate must be > 0, got {self.world_model_learning_rate}")
        if not 0 < self.validation_share < 1:
            raise UserError(f"validation_share must be in (0, 1), got {self.validation_share}")
