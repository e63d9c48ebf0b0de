"""What is installed and what an import loads; the README's commands are the ones that CI runs."""

import re
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
LOADED_ON_USE = (
    "ml_dtypes",
    "numba",
    "llvmlite",
    "triton",
    "cupy",
    "cuda",
    "scipy",
    "gguf",
    "tokenizers",
    "typer",
    "rich",
)


def loaded_after(statement: str) -> set[str]:
    code = f"{statement}\nimport sys\nprint(*sorted({{name.partition('.')[0] for name in sys.modules}}))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT)
    return set(done.stdout.split())


def test_importing_the_namespace_loads_no_compiler_and_no_driver():
    loaded = loaded_after("import outlive.core as mx; assert mx.array")
    assert "outlive" in loaded
    assert not loaded.intersection(LOADED_ON_USE)


def test_importing_the_package_alone_loads_nothing_heavy():
    assert not loaded_after("import outlive").intersection((*LOADED_ON_USE, "numpy"))


@pytest.fixture(scope="module")
def wheel(tmp_path_factory) -> zipfile.ZipFile:
    folder = tmp_path_factory.mktemp("wheel")
    code = f"import hatchling.build as build; print(build.build_wheel({str(folder)!r}))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT, check=False)
    assert done.returncode == 0, done.stderr
    return zipfile.ZipFile(folder / done.stdout.split()[-1])


def test_there_is_one_pure_wheel_with_the_package_alone(wheel):
    assert wheel.filename.endswith("-py3-none-any.whl")
    rooms = {name.partition("/")[0] for name in wheel.namelist()}
    assert {room for room in rooms if not room.endswith(".dist-info")} == {"outlive"}
    assert "outlive/py.typed" in wheel.namelist()
    assert not [name for name in wheel.namelist() if name.endswith((".so", ".pyc"))]


def test_the_wheel_names_its_command_and_its_licence(wheel):
    texts = {Path(name).name: name for name in wheel.namelist() if ".dist-info/" in name}
    assert "outlive = outlive.cli.main:main" in wheel.read(texts["entry_points.txt"]).decode()
    assert "License-Expression: MIT" in wheel.read(texts["METADATA"]).decode()
    assert "LICENSE" in texts


def test_ci_runs_the_commands_of_the_readme():
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    written = re.findall(r"^```sh\n(.+)\n```$", readme, re.MULTILINE)
    done = subprocess.run([ROOT / ".ci" / "run", "--show-commands"], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == written[:2]
    assert written[0].startswith("pip install -e . && outlive generate ")
    assert written[1] == "pip install -e '.[test]' && pytest"


def test_the_program_of_the_readme_prints_what_it_says():
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    (program,) = re.findall(r"^```python\n(.+?)^```$", readme, re.MULTILINE | re.DOTALL)
    said = re.findall(r"^print\(.+\)  # (.+)$", program, re.MULTILINE)
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, cwd=ROOT)
    assert done.stdout.splitlines() == said
