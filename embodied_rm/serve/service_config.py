"""How a service runs, and what it takes."""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass, field

from embodied_rm.errors import UserError

BYTES_PER_MIB = 1 << 20


@dataclass(frozen=True, kw_only=True)
class ServeLimits:
    """What one client may ask of a service. Whatever is over them is refused before anything is allocated for it."""

    max_body_mb: float = 64.0
    """Of one request."""
    max_header_kb: int = 512
    """JSON of one request."""
    max_envs_per_request: int = 1024
    """Environments of one request."""
    max_views: int = 8
    max_image_side: int = 1024
    """Height and width of an image, pixels."""
    max_frames: int = 512
    """Of one video."""
    max_instruction_chars: int = 2000
    """Letters of an instruction."""
    max_sessions: int = 4096
    """Episodes that are remembered at once."""
    idle_timeout_s: float = 900.0
    """Seconds after which an episode that nobody advances is forgotten."""
    max_queue: int = 256
    """Requests that wait at once; another one is refused."""
    max_queue_mb: float = 512.0
    """Bytes that they have together, those still arriving among them."""
    max_queue_share: float = 0.5
    """Of these places, for one client (a run) at most."""
    response_timeout_s: float = 60.0
    """Longest wait for an answer, where the client does not say less."""
    body_timeout_s: float = 20.0
    """Longest time that a request may take to arrive."""
    max_connections: int = 1024

    def __post_init__(self) -> None:
        for name, value in vars(self).items():
            if not value > 0:
                raise UserError(f"limits.{name} must be > 0, got {value}")
        if self.max_queue_share > 1:
            raise UserError(f"limits.share is a share of the queue, at most 1, got {self.max_queue_share}")

    @property
    def max_body_bytes(self) -> int:
        """Bytes."""
        return int(self.max_body_mb * BYTES_PER_MIB)

    @property
    def max_queue_bytes(self) -> int:
        return int(self.max_queue_mb * BYTES_PER_MIB)


@dataclass(frozen=True, kw_only=True)
class RayConfig:
    """Whether, and how, the service is several replicas that Ray Serve looks after."""

    min_replicas: int | None = None
    """How many there are at least; None: none, this process serves alone."""
    max_replicas: int | None = None
    """How many there may be when they are asked for much; None: as many as there are at least."""
    target_ongoing_requests: int = 4
    """Requests under way in a replica, on average, from which another one is started."""
    num_cpus: float = 1.0
    """Processors of each."""
    num_gpus: float = 0.0
    address: str | None = None
    """Of a cluster, `auto` for that of this machine; the service stays there. None: a Ray of our own, which ends with
    us."""

    def __post_init__(self) -> None:
        for name in ("max_replicas", "address"):
            if self.min_replicas is None and getattr(self, name) is not None:
                raise UserError(f"ray.{name}={getattr(self, name)} is of replicas: say how many, ray.replicas=2")
        if self.min_replicas is not None and not 1 <= self.min_replicas <= self.resolved_max_replicas:
            raise UserError(f"ray.replicas must be from 1 to ray.most, got {self.min_replicas} and {self.max_replicas}")
        if self.target_ongoing_requests < 1 or not self.num_cpus > 0 or self.num_gpus < 0:
            raise UserError(
                f"ray.ongoing must be >= 1, ray.cpus > 0 and ray.gpus >= 0, got {self.target_ongoing_requests}, {self.num_cpus:g} and "
                f"{self.num_gpus:g}"
            )

    @property
    def resolved_max_replicas(self) -> int:
        """How many there may be."""
        return self.max_replicas or self.min_replicas or 0


@dataclass(frozen=True, kw_only=True)
class ServeConfig:
    """A service."""

    host: str = "127.0.0.1"
    port: int = 8080
    """Of HTTP; 0: any that is free."""
    grpc_port: int | None = None
    """Of gRPC; None: it is not spoken."""
    api_key_env: str | None = None
    """Environment variable with the key that every request must show; needed where others than this machine listen."""
    max_batch_size: int = 256
    """Environments that are judged side by side at most."""
    max_queue_delay_ms: float = 0.0
    """How long a batch that is not full waits for more; 0: never, what comes while one is judged is the next."""
    drain_timeout_s: float = 30.0
    """Longest time that accepted requests are given after SIGTERM."""
    limits: ServeLimits = field(default_factory=ServeLimits)
    ray: RayConfig = field(default_factory=RayConfig)

    def __post_init__(self) -> None:
        if self.ray.min_replicas is not None and self.port == 0:
            raise UserError("port=0 finds a free port for a service alone: say one for replicas")
        if self.ray.min_replicas is not None and self.grpc_port is not None:
            raise UserError(f"grpc_port={self.grpc_port} is of a service alone: its replicas speak HTTP only")
        for name, port in (("port", self.port), ("grpc_port", self.grpc_port or 0)):
            if not 0 <= port < 1 << 16:
                raise UserError(f"{name} must be a port, from 0 to 65535, got {port}")
        if self.max_batch_size < 1:
            raise UserError(f"batch must be >= 1, got {self.max_batch_size}")
        if self.max_queue_delay_ms < 0 or not self.drain_timeout_s > 0:
            raise UserError(
                f"wait_ms must be >= 0 and drain_s > 0, got {self.max_queue_delay_ms} and {self.drain_timeout_s}"
            )

    def require_api_key(self, api_key: str | None) -> None:
        """Raises `UserError` where strangers could ask without a key."""
        if api_key is None and not is_loopback(self.host):
            raise UserError(
                f"host={self.host} listens to other machines, and nobody would have to show a key: put one into an "
                "environment variable and name that, key_variable=..."
            )


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach it."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
