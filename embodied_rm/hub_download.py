"""Repositories of the Hugging Face Hub, for datasets and models: their names, downloads, and errors in one sentence."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from embodied_rm.errors import UserError

REPOSITORY_PATTERN = r"(?!.*\.\.)(?P<repo_id>\w[\w.-]*/\w[\w.-]*)(@(?P<revision>\w[\w./-]*))?"
"""`owner/name` or `owner/name@revision`, a branch, tag or commit. ".." would lead out of the cache's folders."""
DEFAULT_REVISION = "main"


def download_repository(repo_id: str, label: str, error_class: type[UserError], **options: Any) -> Path:
    """Download a repository `owner/name`, or find it in the cache; return its folder. `error_class` if that fails.

    Uses the hub at `HF_ENDPOINT` with the token of the hub's own tools. `label` is the name that the user gave, and
    `options` are those of `huggingface_hub.snapshot_download`.
    """
    # Imported here because the import takes 0.3 s, which only commands that use the hub should pay.
    from huggingface_hub import snapshot_download

    with convert_hub_errors(f"{label}: cannot be downloaded", error_class):
        folder = snapshot_download(repo_id, **options)
    return Path(folder)


@contextmanager
def convert_hub_errors(failure: str, error_class: type[UserError]) -> Iterator[None]:
    """Raise an error of the hub's client as an `error_class` of one sentence that starts with `failure`."""
    # `utils.httpx` is the library that this version of the client sends requests with.
    from huggingface_hub.utils import httpx

    try:
        yield
    # The client raises a bare ValueError for an invalid name or card, and a RuntimeError for an interrupted upload.
    except (httpx.HTTPError, OSError, ValueError, RuntimeError) as error:
        raise error_class(f"{failure}: {describe_hub_error(error)}") from error


def describe_hub_error(error: Exception) -> str:
    """Return what went wrong, and what the user can change, for an error of the hub's client."""
    from huggingface_hub import constants
    from huggingface_hub.errors import (
        HfHubHTTPError,
        LocalEntryNotFoundError,
        RepositoryNotFoundError,
        RevisionNotFoundError,
    )
    from huggingface_hub.utils import httpx

    hub, text = f"the hub at {constants.ENDPOINT}", " ".join(str(error).split())
    if isinstance(error, RevisionNotFoundError):
        return "the repository has no such branch, tag or commit"
    if isinstance(error, RepositoryNotFoundError):
        return f"{hub} has no such repository, or the token (HF_TOKEN, `hf auth login`) has no access to it"
    if isinstance(error, HfHubHTTPError) and error.response.status_code in (401, 403):
        return f"{hub} needs a token with access to it: set HF_TOKEN, or run `hf auth login`"
    if isinstance(error, LocalEntryNotFoundError):
        cause = " ".join(str(error.__cause__ or error).split())
        return f"{hub} does not answer, and the cache has no copy ({cause})"
    if isinstance(error, httpx.TransportError):
        return f"{hub} does not answer ({text})"
    return text
