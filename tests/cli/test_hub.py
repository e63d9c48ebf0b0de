"""Models from a hub: fetched by the library, kept in its cache, listed, removed; what goes wrong is one sentence."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from tests.cli.conftest import OUTLIVE, assert_one_sentence
from tests.lm.checkpoints import write_checkpoint
from tests.lm.fake_hub import COMMIT, serving
from tests.lm.tiny import TinyLlama

GENERATE = ("generate", "hello", "--max-tokens", "5", "--model")


@pytest.fixture(scope="module")
def hub(tmp_path_factory):
    base = tmp_path_factory.mktemp("hub")
    folder = write_checkpoint(base / "tiny", shards=2)
    (folder / "README.md").write_text("---\ntags: [a]\nlicense: apache-2.0\n---\n# Tiny\n")
    (folder / "modeling.py").write_text("raise SystemExit('code of a repository ran')")
    (folder / "pytorch_model.bin").write_bytes(b"pickle")
    TinyLlama().write(folder / "tiny.gguf")
    with serving({"org/tiny": folder}) as server:
        yield server


@pytest.fixture
def at_hub(hub, outlive, tmp_path):
    """Run a command with this hub and a cache of its own."""
    hub.requests.clear()
    return lambda *arguments, **changes: outlive(*arguments, **{**hub.environment(tmp_path / "hf"), **changes})


def test_a_repository_is_fetched_once_its_licence_is_said_and_it_works_offline(hub, at_hub, tmp_path):
    first = at_hub(*GENERATE, "hf:org/tiny")
    assert first.returncode == 0, first.stderr
    assert "licence of" in first.stderr
    assert "apache-2.0" in first.stderr
    fetched = {path.name for path in (tmp_path / "hf" / "hub").rglob("*") if path.is_symlink() or path.is_file()}
    assert "model-00001-of-00002.safetensors" in fetched
    assert not fetched & {"modeling.py", "pytorch_model.bin", "tiny.gguf"}
    again = at_hub(*GENERATE, "org/tiny", HF_HUB_OFFLINE="1")
    assert (again.returncode, again.stdout) == (0, first.stdout), again.stderr
    assert "licence" not in again.stderr
    unreachable = at_hub(*GENERATE, "hf:org/tiny", HF_ENDPOINT="http://127.0.0.1:9")
    assert (unreachable.returncode, unreachable.stdout) == (0, first.stdout), unreachable.stderr


def test_one_file_and_a_revision_can_be_named(at_hub, tmp_path):
    result = at_hub(*GENERATE, "hf:org/tiny/tiny.gguf", "--revision", COMMIT)
    assert result.returncode == 0, result.stderr
    assert [path.name for path in (tmp_path / "hf" / "hub").rglob("*.gguf")] == ["tiny.gguf"]


def test_models_are_listed_and_removed(at_hub):
    at_hub(*GENERATE, "hf:org/tiny")
    listed = at_hub("models")
    assert listed.stdout.split()[:2] == ["hf:org/tiny", "safetensors"]
    (entry,) = json.loads(at_hub("models", "--json").stdout)
    assert (entry["source"], entry["formats"]) == ("hf:org/tiny", ["safetensors"])
    assert entry["bytes"] > 100_000
    removed = at_hub("models", "rm", "org/tiny")
    assert removed.returncode == 0, removed.stderr
    assert "removed hf:org/tiny" in removed.stderr
    assert not Path(entry["path"]).exists()
    assert_one_sentence(at_hub("models", "rm", "org/tiny"), "is not cached")
    assert "no models are cached" in at_hub("models").stderr


def test_an_interrupted_download_is_completed(hub, at_hub):
    hub.cut = {"model-00001-of-00002.safetensors"}
    first = at_hub(*GENERATE, "hf:org/tiny")
    if first.returncode:  # the library may also resume by itself, in the same call
        assert_one_sentence(first, "cannot fetch hf:org/tiny", "try again")
    result = at_hub(*GENERATE, "hf:org/tiny")
    assert result.returncode == 0, result.stderr
    assert not hub.cut


@pytest.mark.parametrize(
    ("source", "changes", "parts"),
    [
        (["hf:org/none"], {}, ["there is no model hf:org/none"]),
        (["hf:gated/model"], {}, ["hf:gated/model asks for its terms", "hf auth login"]),
        (["hf:org/tiny", "--revision", "nope"], {}, ["no revision at 'nope'"]),
        (["hf:org/tiny/none.gguf"], {}, ["has no file none.gguf"]),
        (["hf:org/tiny"], {"HF_HUB_OFFLINE": "1"}, ["cannot reach the hub for hf:org/tiny", "HF_HUB_OFFLINE"]),
        (["hf:org/tiny"], {"HF_ENDPOINT": "http://127.0.0.1:9"}, ["cannot reach the hub for hf:org/tiny"]),
        (["hf:org/tiny"], {"HF_HUB_CACHE": "/proc/nowhere"}, ["cannot fetch hf:org/tiny"]),
        (["hf:../tiny"], {}, ["names no repository"]),
        (["/nowhere", "--revision", "x"], {}, ["a revision (x) is of a hub repository"]),
    ],
)  # fmt: skip
def test_what_cannot_be_fetched_is_told_in_one_sentence(at_hub, source, changes, parts):
    assert_one_sentence(at_hub(*GENERATE, *source, **changes), *parts)


def test_two_processes_fill_one_cache(hub, environment, tmp_path):
    command = [*OUTLIVE, *GENERATE, "hf:org/tiny"]
    settings = environment | hub.environment(tmp_path / "hf")
    processes = [
        subprocess.Popen(command, env=settings, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        for _ in range(2)
    ]
    outputs = [process.communicate(timeout=120) for process in processes]
    assert [process.returncode for process in processes] == [0, 0], outputs
    assert outputs[0][0] == outputs[1][0]
