"""A service of the hash model, as a separate process: python benchmarks/known_service.py"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable

from known_models import HashModel, serve_model

from embodied_rm.serve.server import serve
from embodied_rm.serve.service_config import ServeConfig, ServeLimits
from embodied_rm.serve.service_metrics import add_log_stream


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--port", type=int, default=0, help="HTTP port; 0: any free port")
    parser.add_argument("--grpc-port", type=int, help="gRPC port")
    parser.add_argument("--pause", type=float, default=0.0, help="seconds per batch")
    parser.add_argument("--batch", type=int, default=256, help="environments per batch")
    parser.add_argument("--limits", default="{}", help="JSON with limits to change")
    args = parser.parse_args()

    def announce_start(url: str, stop: Callable[[], None]) -> None:
        sys.stdout.write(f"serving at {url}\n")
        sys.stdout.flush()

    add_log_stream(sys.stdout)
    limits = ServeLimits(**json.loads(args.limits))
    config = ServeConfig(port=args.port, grpc_port=args.grpc_port, max_batch_size=args.batch, limits=limits)
    serve(serve_model(HashModel(args.pause)), config, None, announce_start)


if __name__ == "__main__":
    main()
