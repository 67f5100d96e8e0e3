"""Configuration of the reward service."""

import ipaddress
from dataclasses import dataclass, field

from embodied_rm.errors import UserError, check_minimum

BYTES_PER_MIB = 1 << 20


@dataclass(frozen=True, kw_only=True)
class ServeLimits:
    """Limits per request and per service. A request over a limit is rejected before any allocation."""

    max_body_mb: float = 64.0  # size of one request, in MiB
    max_header_kb: int = 512  # JSON of one request, in KiB
    max_envs_per_request: int = 1024  # environments per request
    max_views: int = 8
    max_image_side: int = 1024  # height and width of an image, in pixels
    max_frames: int = 512  # frames per clip
    max_instruction_chars: int = 2000  # characters per instruction
    max_sessions: int = 4096  # episodes with state on the server
    idle_timeout_s: float = 900.0  # seconds without a request after which an episode is evicted
    max_queue: int = 256  # queued requests; further ones are rejected (429)
    max_queue_mb: float = 512.0  # total size of queued requests, in MiB, including those still arriving
    max_client_share: float = 0.5  # largest share of the queue, and of the episodes, for one client; see `peer`
    response_timeout_s: float = 60.0  # seconds to respond, unless the client sets a shorter timeout
    body_timeout_s: float = 20.0  # seconds for a request to arrive, and for a response to be read
    max_connections: int = 1024

    def __post_init__(self) -> None:
        for name, value in vars(self).items():
            if not value > 0:
                raise UserError(f"limits.{name} must be > 0, got {value}")
        if self.max_client_share > 1:
            raise UserError(f"limits.max_client_share must be at most 1, got {self.max_client_share}")

    @property
    def max_body_bytes(self) -> int:
        return int(self.max_body_mb * BYTES_PER_MIB)

    @property
    def max_client_queue(self) -> int:
        """Requests of one client that may be queued."""
        return max(1, int(self.max_queue * self.max_client_share))

    @property
    def max_queue_bytes(self) -> int:
        return int(self.max_queue_mb * BYTES_PER_MIB)


@dataclass(frozen=True, kw_only=True)
class RayConfig:
    """Replicas of the service under Ray Serve."""

    min_replicas: int | None = None  # Smallest number of replicas. None: no Ray, this process serves alone.
    max_replicas: int | None = None  # Largest number of replicas under load. None: `min_replicas`.
    target_ongoing_requests: int = 4  # mean ongoing requests per replica above which Ray Serve adds one
    num_cpus: float = 1.0  # CPUs per replica
    num_gpus: float = 0.0
    address: str | None = None
    """Address of a Ray cluster, `auto` for the one of this machine; the service keeps running there. None: start a
    local Ray, which ends with this process."""

    def __post_init__(self) -> None:
        for name in ("max_replicas", "address"):
            if self.min_replicas is None and getattr(self, name) is not None:
                raise UserError(f"ray.{name}={getattr(self, name)} needs replicas: set ray.min_replicas=2, for example")
        if self.min_replicas is not None and not 1 <= self.min_replicas <= self.resolved_max_replicas:
            got = f"{self.min_replicas} and {self.max_replicas}"
            raise UserError(f"ray.min_replicas must be from 1 to ray.max_replicas, got {got}")
        if self.target_ongoing_requests < 1 or not self.num_cpus > 0 or self.num_gpus < 0:
            bounds = "ray.target_ongoing_requests must be >= 1, ray.num_cpus > 0 and ray.num_gpus >= 0"
            got = f"{self.target_ongoing_requests}, {self.num_cpus:g} and {self.num_gpus:g}"
            raise UserError(f"{bounds}, got {got}")

    @property
    def resolved_max_replicas(self) -> int:
        """`max_replicas`, or `min_replicas` where that is None."""
        return self.max_replicas or self.min_replicas or 0


@dataclass(frozen=True, kw_only=True)
class ServeConfig:
    """Configuration of one service."""

    host: str = "127.0.0.1"
    port: int = 8080  # HTTP port; 0: any free port
    grpc_port: int | None = None  # gRPC port; None: no gRPC
    api_key_env: str | None = None
    """Environment variable with the API key. Required unless the service listens on loopback only."""
    max_batch_size: int = 256  # largest number of environments per batch
    max_queue_delay_ms: float = 0.0  # milliseconds that an incomplete batch waits for more requests; 0: no wait
    drain_timeout_s: float = 30.0  # seconds for accepted requests to finish after SIGTERM
    limits: ServeLimits = field(default_factory=ServeLimits)
    ray: RayConfig = field(default_factory=RayConfig)

    def __post_init__(self) -> None:
        if self.ray.min_replicas is not None and self.port == 0:
            raise UserError("port=0 picks a free port for a single process: replicas need a fixed port")
        if self.ray.min_replicas is not None and self.grpc_port is not None:
            raise UserError(f"grpc_port={self.grpc_port} needs a single process: replicas serve HTTP only")
        for name, port in (("port", self.port), ("grpc_port", self.grpc_port or 0)):
            if not 0 <= port < 1 << 16:
                raise UserError(f"{name} must be a port, from 0 to 65535, got {port}")
        check_minimum(self, 1, "max_batch_size")
        if self.max_queue_delay_ms < 0 or not self.drain_timeout_s > 0:
            got = f"{self.max_queue_delay_ms} and {self.drain_timeout_s}"
            raise UserError(f"max_queue_delay_ms must be >= 0 and drain_timeout_s > 0, got {got}")

    def require_api_key(self, api_key: str | None) -> None:
        """Raise `UserError` if other machines could reach the service without a key."""
        if api_key is None and not is_loopback(self.host):
            raise UserError(
                f"host={self.host} is reachable from other machines, which needs an API key: put one into an "
                "environment variable and name it, api_key_env=..."
            )


def is_loopback(host: str) -> bool:
    """Return whether only this machine can reach `host`."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
