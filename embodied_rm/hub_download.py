"""Downloads from the Hugging Face Hub, for datasets and models."""

from pathlib import Path
from typing import Any

from embodied_rm.errors import UserError


def download_repository(repository: str, label: str, error_class: type[UserError], **options: Any) -> Path:
    """Download a repository `owner/name`, or find it in the cache; return its folder. `error_class` if that fails.

    Uses the hub at `HF_ENDPOINT` with the token of the hub's own tools. `label` is the name that the user gave, and
    `options` are those of `huggingface_hub.snapshot_download`.
    """
    # Imported here because the import takes 0.3 s, which only commands that use the hub should pay.
    import httpx
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import HfHubHTTPError, HFValidationError, LocalEntryNotFoundError

    try:
        return Path(snapshot_download(repository, **options))
    except (HfHubHTTPError, HFValidationError, LocalEntryNotFoundError, httpx.HTTPError, OSError) as error:
        raise error_class(f"{label}: cannot be downloaded: {' '.join(str(error).split())}") from error
