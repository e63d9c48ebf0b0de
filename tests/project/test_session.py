"""What a plain ``pytest`` selects: no long runs, no GPU tests, the device that was asked for."""

from pathlib import Path

import pytest

pytest_plugins = ["pytester"]

ROOT = Path(__file__).resolve().parents[2]
SAMPLE = """
import pytest
@pytest.mark.nightly
def test_long(): pass
@pytest.mark.gpu
def test_on_gpu(device): assert device == "gpu"
def test_quick(device): print("device is", device)
"""


@pytest.fixture
def outcomes(pytester, monkeypatch):
    """Run the sample with the project's own configuration and options; returns what each outcome counted."""
    pytester.makepyfile(test_sample=SAMPLE)
    monkeypatch.setenv("PYTHONPATH", str(ROOT))

    def run(*options: str) -> dict[str, int]:
        configuration = ("-c", str(ROOT / "pyproject.toml"), "-p", "tests.conftest", "-p", "no:cacheprovider")
        result = pytester.runpytest_subprocess(*configuration, *options, str(pytester.path / "test_sample.py"))
        return result.parseoutcomes()

    return run


def test_a_plain_run_leaves_out_long_and_gpu_tests(outcomes):
    assert outcomes() == {"passed": 1, "deselected": 2}


def test_gpu_tests_run_when_the_gpu_is_asked_for(outcomes):
    assert outcomes("--device=gpu") == {"passed": 2, "deselected": 1}


def test_long_tests_run_when_asked_for(outcomes):
    assert outcomes("-m", "nightly") == {"passed": 1, "deselected": 2}


def test_an_unknown_marker_is_an_error(outcomes, pytester):
    pytester.path.joinpath("test_sample.py").write_text("import pytest\n@pytest.mark.nightlie\ndef test(): pass\n")
    assert outcomes()["errors"] == 1
