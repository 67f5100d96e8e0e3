"""How a service runs, and what it takes."""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass, field

from embodied_rm.errors import UserError

MEGABYTE = 1 << 20


@dataclass(frozen=True, kw_only=True)
class Limits:
    """What one client may ask of a service. Whatever is over them is refused before anything is allocated for it."""

    body_mb: float = 64.0
    """Of one request."""
    header_kb: int = 512
    """JSON of one request."""
    rows: int = 1024
    """Environments of one request."""
    views: int = 8
    side: int = 1024
    """Height and width of a picture, pixels."""
    frames: int = 512
    """Of one film."""
    text: int = 2000
    """Letters of an instruction."""
    sessions: int = 4096
    """Episodes that are remembered at once."""
    idle_s: float = 900.0
    """Seconds after which an episode that nobody advances is forgotten."""
    queue: int = 256
    """Requests that wait at once; another one is refused."""
    queue_mb: float = 512.0
    """Bytes that they have together, those still arriving among them."""
    share: float = 0.5
    """Of these places, for one client (a run) at most."""
    timeout_s: float = 60.0
    """Longest wait for an answer, where the client does not say less."""
    body_s: float = 20.0
    """Longest time that a request may take to arrive."""
    connections: int = 1024

    def __post_init__(self) -> None:
        for name, value in vars(self).items():
            if not value > 0:
                raise UserError(f"limits.{name} must be > 0, got {value}")
        if self.share > 1:
            raise UserError(f"limits.share is a share of the queue, at most 1, got {self.share}")

    @property
    def body(self) -> int:
        """Bytes."""
        return int(self.body_mb * MEGABYTE)

    @property
    def queue_bytes(self) -> int:
        return int(self.queue_mb * MEGABYTE)


@dataclass(frozen=True, kw_only=True)
class RayConfig:
    """Whether, and how, the service is several replicas that Ray Serve looks after."""

    replicas: int | None = None
    """How many there are at least; None: none, this process serves alone."""
    most: int | None = None
    """How many there may be when they are asked for much; None: as many as there are at least."""
    ongoing: int = 4
    """Requests under way in a replica, on average, from which another one is started."""
    cpus: float = 1.0
    """Processors of each."""
    gpus: float = 0.0
    address: str | None = None
    """Of a cluster, `auto` for that of this machine; the service stays there. None: a Ray of our own, which ends with
    us."""

    def __post_init__(self) -> None:
        for name in ("most", "address"):
            if self.replicas is None and getattr(self, name) is not None:
                raise UserError(f"ray.{name}={getattr(self, name)} is of replicas: say how many, ray.replicas=2")
        if self.replicas is not None and not 1 <= self.replicas <= self.ceiling:
            raise UserError(f"ray.replicas must be from 1 to ray.most, got {self.replicas} and {self.most}")
        if self.ongoing < 1 or not self.cpus > 0 or self.gpus < 0:
            raise UserError(
                f"ray.ongoing must be >= 1, ray.cpus > 0 and ray.gpus >= 0, got {self.ongoing}, {self.cpus:g} and "
                f"{self.gpus:g}"
            )

    @property
    def ceiling(self) -> int:
        """How many there may be."""
        return self.most or self.replicas or 0


@dataclass(frozen=True, kw_only=True)
class ServeConfig:
    """A service."""

    host: str = "127.0.0.1"
    port: int = 8080
    """Of HTTP; 0: any that is free."""
    grpc_port: int | None = None
    """Of gRPC; None: it is not spoken."""
    key_variable: str | None = None
    """Environment variable with the key that every request must show; needed where others than this machine listen."""
    batch: int = 256
    """Environments that are judged side by side at most."""
    wait_ms: float = 0.0
    """How long a batch that is not full waits for more; 0: never, what comes while one is judged is the next."""
    drain_s: float = 30.0
    """Longest time that accepted requests are given after SIGTERM."""
    limits: Limits = field(default_factory=Limits)
    ray: RayConfig = field(default_factory=RayConfig)

    def __post_init__(self) -> None:
        if self.ray.replicas is not None and self.port == 0:
            raise UserError("port=0 finds a free port for a service alone: say one for replicas")
        if self.ray.replicas is not None and self.grpc_port is not None:
            raise UserError(f"grpc_port={self.grpc_port} is of a service alone: its replicas speak HTTP only")
        for name, port in (("port", self.port), ("grpc_port", self.grpc_port or 0)):
            if not 0 <= port < 1 << 16:
                raise UserError(f"{name} must be a port, from 0 to 65535, got {port}")
        if self.batch < 1:
            raise UserError(f"batch must be >= 1, got {self.batch}")
        if self.wait_ms < 0 or not self.drain_s > 0:
            raise UserError(f"wait_ms must be >= 0 and drain_s > 0, got {self.wait_ms} and {self.drain_s}")

    def refuse_open_door(self, key: str | None) -> None:
        """Raises `UserError` where strangers could ask without a key."""
        if key is None and not loopback(self.host):
            raise UserError(
                f"host={self.host} listens to other machines, and nobody would have to show a key: put one into an "
                "environment variable and name that, key_variable=..."
            )


def loopback(host: str) -> bool:
    """Whether only this machine can reach it."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
