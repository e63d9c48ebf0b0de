"""Help, ``outlive run``, ``outlive doctor`` and ``outlive bench``."""

from __future__ import annotations

import json
import re
import stat
import subprocess
import sys

import pytest

from outlive import __version__
from tests.cli.conftest import assert_one_sentence


def test_help_names_the_commands_and_loads_no_arrays(outlive, environment):
    result = outlive("--help")
    assert result.returncode == 0
    for command in ("generate", "run", "doctor", "bench"):
        assert re.search(rf"^  {command} ", result.stdout, re.MULTILINE)
    names = ("numpy", "gguf", "jinja2", "tokenizers")
    program = f"import sys, outlive.cli.main; print([name for name in {names} if name in sys.modules])"
    loaded = subprocess.run([sys.executable, "-c", program], env=environment, stdout=subprocess.PIPE, check=True)
    assert loaded.stdout == b"[]\n"


def test_version(outlive):
    assert outlive("--version").stdout == f"outlive {__version__}\n"


def test_an_unknown_option_is_a_usage_error(outlive):
    result = outlive("generate", "x", "--nope")
    assert result.returncode == 2
    assert "--nope" in result.stderr


@pytest.fixture
def program(tmp_path):
    """Write a program and return its path."""

    def write(text: str):
        path = tmp_path / "program.py"
        path.write_text(text)
        return path

    return write


SHOW = "import sys, outlive.core as mx\nprint(__name__, sys.argv[1:], mx.default_device().type == mx.cpu)\n"


@pytest.mark.parametrize(
    ("before", "after", "passed"),
    [
        ([], [], []),
        ([], ["a", "--x", "-v", "1"], ["a", "--x", "-v", "1"]),
        (["--device", "cpu"], ["a"], ["a"]),
        ([], ["a", "--device", "cpu"], ["a"]),
        (["--device", "cpu"], ["--", "--device", "gpu", "--help"], ["--device", "gpu", "--help"]),
    ],
)
def test_run_passes_arguments_and_keeps_its_own(outlive, program, before, after, passed):
    result = outlive("run", *before, program(SHOW), *after)
    assert result.stdout == f"__main__ {passed} True\n", result.stderr
    assert result.returncode == 0


def test_run_finds_modules_beside_the_program(outlive, program, tmp_path):
    (tmp_path / "beside.py").write_text("value = 7")
    assert outlive("run", program("import beside; print(beside.value)")).stdout == "7\n"


def test_run_exits_as_the_program_does(outlive, program):
    assert outlive("run", program("import sys; sys.exit(3)")).returncode == 3


def test_run_shows_the_programs_own_traceback(outlive, program):
    path = program("def f():\n    return 1 / 0\nf()\n")
    result = outlive("run", path)
    assert result.returncode == 1
    assert result.stderr.splitlines()[:2] == [
        "Traceback (most recent call last):",
        f'  File "{path}", line 3, in <module>',
    ]
    assert result.stderr.endswith("ZeroDivisionError: division by zero\n")


def test_run_shows_a_syntax_error(outlive, program):
    result = outlive("run", program("x = ("))
    assert result.returncode == 1
    assert "SyntaxError" in result.stderr


def test_run_writes_a_timeline(outlive, program, tmp_path):
    path = program("import outlive.core as mx\nmx.eval(mx.ones((3,)) + 1)")
    result = outlive("run", "--trace", str(tmp_path / "trace.json"), path)
    assert result.returncode == 0, result.stderr
    events = json.loads((tmp_path / "trace.json").read_text(encoding="utf-8"))["traceEvents"]
    assert any("add" in event["args"].get("kernels", ()) for event in events if "args" in event)


def test_run_refuses_a_timeline_that_could_not_be_written(outlive, program):
    assert_one_sentence(outlive("run", "--trace", "/nowhere/trace.json", program("")), "/nowhere/trace.json")


def test_run_finds_the_smallest_cap_of_a_program(outlive, program):
    path = program(
        "import outlive.core as mx\na = mx.full((1 << 22,), 1, mx.uint8)\nmx.eval(a)\nmx.eval(a + mx.full((1 << 22,), 2, mx.uint8))"
    )
    result = outlive("run", "--calibrate", path)
    assert result.returncode == 0, result.stderr
    assert "smallest cap: " in result.stdout
    assert "time under it: " in result.stdout


def test_run_cannot_calibrate_a_program_that_fails(outlive, program):
    assert_one_sentence(outlive("run", "--calibrate", program("raise SystemExit(4)")), "ends with status 4")


def test_run_names_a_missing_program_or_device(outlive, program):
    assert_one_sentence(outlive("run", "/nowhere.py"), "no program file /nowhere.py")
    assert_one_sentence(outlive("run", "--device", "tpu", program("")), "--device is 'tpu'")


def test_a_device_that_is_not_there_is_named(outlive, program):
    result = outlive("run", "--device", "gpu", program(""), CUDA_VISIBLE_DEVICES="")
    assert_one_sentence(result, "--device gpu cannot be used", "outlive doctor")


def test_doctor_tells_versions_devices_and_caches(outlive, environment):
    result = outlive("doctor")
    assert result.returncode == 0, result.stderr
    for part in (
        f"outlive {__version__}",
        "numpy ",
        "cpu: available",
        "cpu kernels: for ",
        "gpu: ",
        environment["XDG_CACHE_HOME"],
        "models: ",
    ):
        assert part in result.stdout
    assert "missing" not in result.stdout


def test_doctor_tells_of_an_environment_variable_without_meaning_and_goes_on(outlive):
    result = outlive("doctor", OUTLIVE_NUM_THREADS="many")
    assert result.returncode == 0, result.stderr
    assert "OUTLIVE_NUM_THREADS" in result.stdout
    assert "models: " in result.stdout


def test_doctor_tells_of_an_unusable_cache_folder(outlive, tmp_path):
    (tmp_path / "file").touch()
    result = outlive("doctor", XDG_CACHE_HOME=str(tmp_path / "file"))
    assert result.returncode == 0, result.stderr
    assert "NOT writable" in result.stdout


@pytest.fixture
def peer(tmp_path):
    """An interpreter that ignores its program and writes given results, with what it saw of the environment."""

    def make(results: dict):
        path = tmp_path / "peer"
        (tmp_path / "results.json").write_text(json.dumps(results))
        path.write_text(
            "#!/bin/sh\n"
            'test -z "$OPENBLAS_CORETYPE$OPENBLAS_L2_SIZE" || exit 9\n'
            'while test "$1" != --json; do shift; done\n'
            f'cp "{tmp_path}/results.json" "$2"\n'
        )
        path.chmod(path.stat().st_mode | stat.S_IXUSR)
        return path

    return make


LM = ["bench", "lm", "--prefill", "9", "--decode", "4", "--repeats", "2"]
PEER_LM = {
    "library": "other",
    "version": "1",
    "peak_bytes": 1,
    "runs": [{"prefill_tokens_per_s": 10.0, "decode_tokens_per_s": 2.0, "first_token_s": 0.9}],
}


def test_bench_lm_measures_us_and_the_peer(outlive, tiny_model, peer):
    result = outlive(
        *LM,
        "--model",
        tiny_model,
        "--json",
        "--peer-python",
        peer(PEER_LM),
        OPENBLAS_CORETYPE="Haswell",
        OPENBLAS_L2_SIZE="1",
    )
    assert result.returncode == 0, result.stderr
    report = json.loads(result.stdout)
    for key in ("prefill_tokens_per_s", "decode_tokens_per_s", "first_token_s", "peak_bytes", "peak_array_bytes"):
        assert report[key] > 0
    low, high = report["spread"]["decode_tokens_per_s"]
    assert low <= report["decode_tokens_per_s"] <= high
    assert report["first_token_s"] * report["prefill_tokens_per_s"] == pytest.approx(9, rel=0.5)
    assert report["ratio"]["decode"] == pytest.approx(report["decode_tokens_per_s"] / 2)
    assert report["ratio"]["prefill"] == pytest.approx(report["prefill_tokens_per_s"] / 10)
    assert {"processor", "memory_bytes", "python", "outlive", "commit", "date"} <= report["machine"].keys()


def test_bench_lm_prints_a_table(outlive, tiny_model, peer):
    result = outlive(*LM, "--model", tiny_model, "--peer-python", peer(PEER_LM))
    assert result.returncode == 0, result.stderr
    assert re.search(r"^outlive .*\n  prefill_tokens_per_s +[\d.]+ +\(", result.stdout, re.MULTILINE)
    assert "\nother 1\n" in result.stdout
    assert re.search(r"^ratio: prefill [\d.]+, decode [\d.]+$", result.stdout, re.MULTILINE)


def test_bench_micro_measures_rows_beside_the_peers(outlive, peer):
    rows = {"rows": [{"name": "sum_all_f32", "ms": 1e6}]}
    options = ["bench", "micro", "--only", "sum_all", "--seconds", "0.01", "--peer-python", peer(rows)]
    result = outlive(*options)
    assert result.returncode == 0, result.stderr
    assert re.search(r"^sum_all_f32 .*x$", result.stdout, re.MULTILINE)
    report = json.loads(outlive(*options, "--json").stdout)
    assert [row["name"] for row in report["outlive"]["rows"]] == ["sum_all_f32"]
    assert report["peer"] == rows


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        (["lm", "--prefill", "0"], "--prefill is 0"),
        (["lm", "--decode", "-3"], "--decode is -3"),
        (["lm", "--device", "tpu"], "--device is 'tpu'"),
        (["micro", "--seconds", "0"], "--seconds is 0"),
        (["micro", "--device", "tpu"], "--device is 'tpu'"),
    ],
)
def test_bench_names_an_option_without_meaning(outlive, options, complaint):
    assert_one_sentence(outlive("bench", *options), complaint)


def test_bench_names_a_peer_that_cannot_run(outlive, tiny_model):
    result = outlive(*LM, "--model", tiny_model, "--peer-python", "/nowhere/python")
    assert_one_sentence(result, "cannot run /nowhere/python", "--peer-python")
