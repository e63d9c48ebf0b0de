"""``outlive doctor --api``: nothing of the reference's API is missing, and the page and the kept surface are current."""

from __future__ import annotations

import inspect
import json
import subprocess
import sys
from pathlib import Path

import pytest

import outlive.core as mx
from outlive.cli import api_probe
from outlive.cli.api_coverage import MISSING, coverage, kept_reference
from outlive.cli.api_differences import NAMES, RAISING
from tests.reference.environment import reference_python

ROOT = Path(__file__).parents[2]


def found(name: str):
    value = mx
    for part in name.split("."):
        value = getattr(value, part)
    return value


def test_no_name_is_missing():
    _, reference = kept_reference()
    assert [row for row in coverage(reference) if row.status == MISSING] == []


def test_the_kept_surface_is_the_references_own():
    probe = [str(reference_python()), api_probe.__file__, "mlx.core"]
    asked = json.loads(subprocess.run(probe, capture_output=True, text=True, check=True).stdout)
    version, kept = kept_reference()
    assert asked == kept
    assert version == mx.__version__


def test_the_page_is_current():
    subprocess.run([sys.executable, str(ROOT / "tools" / "api_coverage.py"), "--check"], check=True)


def test_differences_are_of_names_that_exist():
    _, reference = kept_reference()
    assert set(NAMES) | set(RAISING) <= set(reference)
    assert not set(NAMES) & set(RAISING)


ARGUMENTS = {
    "distributed.send": (mx.ones(2), 0),
    "distributed.recv": ((2,), mx.float32, 0),
    "distributed.recv_like": (mx.ones(2), 0),
}


@pytest.mark.parametrize("name", sorted(RAISING))
def test_names_that_raise_by_design_do(name):
    function = found(name)
    required = [p for p in inspect.signature(function).parameters.values() if p.default is p.empty]
    arguments = ARGUMENTS.get(name, ["x" for p in required if p.kind is not p.KEYWORD_ONLY])
    with pytest.raises((RuntimeError, ValueError), match=r"^\["):
        function(*arguments, **{p.name: "x" for p in required if p.kind is p.KEYWORD_ONLY})


def lacking(function) -> set[str]:
    """How a namespace with `function` in place of `concatenate` stands."""
    _, reference = kept_reference()
    named = {"concatenate": reference["concatenate"]}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(mx, "concatenate", function)
        return {row.note for row in coverage(named) if row.status == MISSING}


def test_a_missing_parameter_is_seen():
    assert lacking(lambda arrays, axis=0: None) == {"stream is not taken by name"}


def test_another_default_is_seen():
    assert lacking(lambda arrays, axis=1, *, stream=None: None) == {"the default of axis is 1.0, not 0.0"}


def test_another_kind_is_seen():
    assert lacking(3.5) == {"it is a value, not a function"}


def test_an_additional_required_parameter_is_seen():
    assert "which the reference does not have" in lacking(lambda arrays, axis=0, *, order, stream=None: None).pop()


def test_doctor_reports_the_api(outlive):
    result = outlive("doctor", "--api")
    assert result.returncode == 0
    assert result.stdout.splitlines()[-1].endswith(" 0 missing")
    assert "metal.start_capture: raising by design" in result.stdout


def test_doctor_refuses_a_reference_without_a_version(outlive):
    result = outlive("doctor", "--api", "--against", "mlx")
    assert result.returncode == 1
    assert "mlx==" in result.stderr
