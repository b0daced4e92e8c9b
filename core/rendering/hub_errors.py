"""What to do when a model cannot be loaded: the sentence and the variable or command that helps."""

from collections.abc import Iterator
from contextlib import contextmanager

from blend.core.errors import BlendError


@contextmanager
def explained(model: str, *, revision: str | None) -> Iterator[None]:
    """Turn what the Hugging Face libraries raise while loading into a BlendError that helps."""
    try:
        yield
    # ImportError: a tokenizer that needs a package which is not installed.
    except (OSError, ValueError, KeyError, TypeError, ImportError) as error:
        raise explanation(error, model, revision=revision) from error


def explanation(error: Exception, model: str, *, revision: str | None) -> BlendError:
    """Return the BlendError for what went wrong while loading *model*."""
    from huggingface_hub import constants, errors

    chain = list(_causes(error))

    def met(kind: type[BaseException]) -> bool:
        return any(isinstance(cause, kind) for cause in chain)

    page = f"{constants.ENDPOINT}/{model}"
    if met(errors.GatedRepoError):
        return BlendError(
            f"model is gated: {model}",
            hint=f"accept its terms at {page}, then set HF_TOKEN or run `hf auth login`",
        )
    if met(errors.RevisionNotFoundError):
        return BlendError(
            f"model has no such revision: {model}: {revision}", hint=f"see {page}/tree/main"
        )
    if met(errors.RepositoryNotFoundError):
        return BlendError(
            f"no such model on the hub, or a private one: {model}",
            hint="check the name; a private model needs HF_TOKEN",
        )
    if met(errors.LocalEntryNotFoundError) or met(errors.OfflineModeIsEnabled):
        return _out_of_reach(model, offline=constants.HF_HUB_OFFLINE, home=constants.HF_HOME)
    text = str(error)
    if "trust_remote_code" in text:
        return BlendError(
            f"model brings its own code, which is not run unasked: {model}",
            hint="read it, then add `--trust-remote-code`",
        )
    why = text.strip().splitlines()[0] if text.strip() else repr(error)
    return BlendError(
        f"cannot load the tokenizer of {model}: {why}",
        hint="check that all files of the model are there and whole",
    )


def _out_of_reach(model: str, *, offline: bool, home: str) -> BlendError:
    if offline:
        return BlendError(
            f"model is not in the local cache, and HF_HUB_OFFLINE is set: {model}: {home}",
            hint="unset HF_HUB_OFFLINE to download it, or point HF_HOME at the cache that has it",
        )
    return BlendError(
        f"model is no folder here and not in the local cache, and the hub cannot be reached: "
        f"{model}: {home}",
        hint="give a local folder, or point HF_HOME at the cache that has it",
    )


def _causes(error: BaseException) -> Iterator[BaseException]:
    current: BaseException | None = error
    seen = set[int]()
    while current is not None and id(current) not in seen:
        yield current
        seen.add(id(current))
        current = current.__cause__ or current.__context__
