"""The models that are cached: those of packages in our own folder, those of the hub in the hub's."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from outlive.lm.errors import SourceError
from outlive.lm.store import MANIFEST, models_folder


@dataclass(frozen=True, slots=True)
class CachedModel:
    """One model: how to name it as a source, its formats, bytes on disk, and where it lies."""

    source: str
    formats: tuple[str, ...]
    nbytes: int
    path: Path


def cached_models() -> list[CachedModel]:
    """All of them, by source."""
    return sorted([*_from_packages(), *_from_hub()], key=lambda model: model.source)


def remove_model(source: str) -> CachedModel:
    """Delete a cached model; returns what it was.

    Raises:
        SourceError: if there is no such model in a cache, or it cannot be deleted.
    """
    wanted = source if ":" in source else f"hf:{source}"
    found = next((model for model in cached_models() if model.source == wanted), None)
    if found is None:
        raise SourceError(f"{source} is not cached; 'outlive models' lists what is")
    try:
        if wanted.startswith("hf:"):
            _remove_from_hub(wanted.removeprefix("hf:"))
        else:
            # Renamed first, so that whoever looks finds it whole or not at all.
            gone = found.path.with_name(f".{found.path.name}.removed")
            shutil.rmtree(gone, ignore_errors=True)
            found.path.rename(gone)
            shutil.rmtree(gone)
    except OSError as error:
        raise SourceError(f"cannot remove {found.path}: {(error.strerror or str(error)).lower()}") from error
    return found


def _from_packages() -> Iterator[CachedModel]:
    for manifest in models_folder().glob(f"*/{MANIFEST}"):
        try:
            source = str(json.loads(manifest.read_text(encoding="utf-8"))["source"])
        except (OSError, ValueError, KeyError, TypeError):
            source = f"damaged:{manifest.parent.name}"
        files = [path for path in manifest.parent.iterdir() if path.is_file()]
        nbytes = sum(path.stat().st_size for path in files)
        yield CachedModel(source, _formats(path.name for path in files), nbytes, manifest.parent)


def _from_hub() -> Iterator[CachedModel]:
    from huggingface_hub import scan_cache_dir
    from huggingface_hub.errors import CacheNotFound

    try:
        repositories = scan_cache_dir().repos
    except CacheNotFound:
        return
    for repository in repositories:
        names = [file.file_name for revision in repository.revisions for file in revision.files]
        if repository.repo_type == "model" and (formats := _formats(names)):
            yield CachedModel(f"hf:{repository.repo_id}", formats, repository.size_on_disk, repository.repo_path)


def _remove_from_hub(name: str) -> None:
    from huggingface_hub import scan_cache_dir

    cache = scan_cache_dir()
    revisions = [
        revision.commit_hash
        for repository in cache.repos
        if repository.repo_id == name and repository.repo_type == "model"
        for revision in repository.revisions
    ]
    cache.delete_revisions(*revisions).execute()


def _formats(names: Iterator[str] | list[str]) -> tuple[str, ...]:
    found = {kind for name in names for kind in ("gguf", "safetensors") if name.endswith(f".{kind}")}
    return tuple(sorted(found))
