"""Every option of ``outlive generate``, and the other commands about models, on tiny ones."""

from __future__ import annotations

import json
import math
import os
import pty
import re
import signal
import struct
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from outlive.lm.loading import load
from tests.cli.conftest import OUTLIVE, assert_one_sentence
from tests.lm.checkpoints import config_of, write_checkpoint
from tests.lm.numpy_llama import NumpyLlama
from tests.lm.tiny import TinyLlama

TEMPLATE = (
    "{% for tool in tools or [] %}[{{ tool.name }}]{% endfor %}"
    "{% for message in messages %}<|im_start|>{{ message['role'] }}\n{{ message['content'] }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    path = write_checkpoint(tmp_path_factory.mktemp("model") / "tiny")
    (path / "chat_template.jinja").write_text(TEMPLATE)
    return path


def piped(environment: dict[str, str], given: bytes, *arguments: str) -> subprocess.CompletedProcess:
    command = [*OUTLIVE, *map(str, arguments)]
    done = subprocess.run(command, env=environment, input=given, capture_output=True, timeout=120, check=False)
    return subprocess.CompletedProcess(command, done.returncode, done.stdout.decode(), done.stderr.decode())


def test_a_prompt_comes_from_an_argument_a_file_or_standard_input(outlive, environment, folder, tmp_path):
    (tmp_path / "p.txt").write_text("hello world")
    options = ["--model", folder, "--max-tokens", "6"]
    outputs = {
        outlive("generate", "hello world", *options).stdout,
        outlive("generate", "--prompt-file", tmp_path / "p.txt", *options).stdout,
        piped(environment, b"hello world", "generate", "-", *options).stdout,
    }
    assert outputs == {"".join(load(folder).stream("hello world", max_tokens=6)) + "\n"}


def test_system_messages_and_tools_reach_the_template(outlive, folder, tmp_path):
    talk = [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]
    (tmp_path / "m.json").write_text(json.dumps(talk))
    (tmp_path / "t.json").write_text(json.dumps([{"name": "clock"}]))
    options = ["--system", "s", "--messages", tmp_path / "m.json", "--tools", tmp_path / "t.json"]
    result = outlive("generate", "c", *options, "--model", folder, "--max-tokens", "4", "--json")
    messages = [{"role": "system", "content": "s"}, *talk, {"role": "user", "content": "c"}]
    ids = load(folder).encode(messages, tools=[{"name": "clock"}])
    assert json.loads(result.stdout)["prompt_tokens"] == len(ids)
    assert ids != load(folder).encode(messages)
    alone = outlive("generate", "--messages", tmp_path / "m.json", "--model", folder, "--max-tokens", "4", "--json")
    assert json.loads(alone.stdout)["prompt_tokens"] == len(load(folder).encode(talk))


def test_raw_text_and_log_probabilities_are_those_of_an_independent_computation(outlive, tiny_model):
    options = ["--raw", "--logprobs", "3", "--json", "--max-tokens", "4", "--model", tiny_model]
    found = json.loads(outlive("generate", "hello", *options).stdout)
    model = load(tiny_model)
    ids = model.tokenizer.encode("hello")
    assert found["prompt_tokens"] == len(ids)
    rows = NumpyLlama(tiny_model).logits(ids + [token["id"] for token in found["tokens"]])[len(ids) - 1 : -1]
    for row, token in zip(rows.astype(np.float64), found["tokens"], strict=True):
        logprobs = row - row.max() - math.log(np.exp(row - row.max()).sum())
        assert token["logprob"] == pytest.approx(logprobs.max(), abs=1e-3)
        assert [entry["id"] for entry in token["top_logprobs"]] == np.argsort(-logprobs)[:3].tolist()
        assert token["token"] == model.tokenizer.token_text(token["id"])
    assert found["finish_reason"] == "length"
    lines = outlive("generate", "hello", *[option for option in options if option != "--json"]).stderr.splitlines()
    assert [json.loads(line)["id"] for line in lines if line.startswith("{")] == [
        token["id"] for token in found["tokens"]
    ]


SAMPLING = {
    "--top-k": "1", "--top-p": "1e-9", "--min-p": "1.0", "--typical-p": "0.5", "--repetition-penalty": "1.5",
    "--presence-penalty": "5", "--frequency-penalty": "5", "--logit-bias": "70:100", "--temperature": "9",
}  # fmt: skip


@pytest.fixture(scope="module")
def plain_answers(folder) -> dict[str, str]:
    from outlive.lm.sampling import Sampler

    model = load(folder)
    drawn = {"greedy": Sampler(), "hot": Sampler(2.0, 3)}
    return {name: "".join(model.stream("hello", max_tokens=20, sampler=sampler)) for name, sampler in drawn.items()}


@pytest.mark.parametrize("option", SAMPLING)
def test_every_sampling_option_changes_the_answer_as_it_should(outlive, folder, plain_answers, option):
    options = ["--model", folder, "--max-tokens", "20", "--seed", "3"]
    heat = [] if option == "--temperature" else ["--temperature", "2.0"]
    text = outlive("generate", "hello", *options, *heat, option, SAMPLING[option]).stdout.removesuffix("\n")
    if option in ("--top-k", "--top-p", "--min-p"):
        assert text == plain_answers["greedy"]  # only the likeliest token is left
    elif option == "--logit-bias":
        assert text == load(folder).tokenizer.token_bytes(70).decode() * 20
    else:
        assert text not in plain_answers.values()


def test_a_stop_string_ends_the_answer(outlive, folder, plain_answers):
    stop = plain_answers["greedy"][5:8]
    options = ["--model", folder, "--max-tokens", "20", "--stop", "never there", "--stop", stop]
    result = outlive("generate", "hello", *options, "--verbose")
    assert result.stdout == plain_answers["greedy"].partition(stop)[0] + "\n"
    assert "finished: a stop string came" in result.stderr


def test_a_saved_cache_is_gone_on_from(outlive, folder, tmp_path):
    raw = ["--raw", "--model", folder, "--max-tokens", "8", "--json"]
    first = json.loads(outlive("generate", "hello wo", *raw, "--save-prompt-cache", tmp_path / "c").stdout)
    again = json.loads(outlive("generate", "hello world", *raw, "--prompt-cache", tmp_path / "c").stdout)
    fresh = json.loads(outlive("generate", "hello world", *raw).stdout)
    assert first["reused_tokens"] == fresh["reused_tokens"] == 0
    assert again["reused_tokens"] > 0
    assert again["text"] == fresh["text"]


@pytest.mark.parametrize("option", [["--kv-bits", "8"], ["--max-kv-size", "300"]])
def test_an_ample_cache_of_another_kind_changes_no_answer(outlive, folder, plain_answers, option):
    assert (
        outlive("generate", "hello", "--model", folder, "--max-tokens", "20", *option).stdout
        == plain_answers["greedy"] + "\n"
    )


def test_a_short_window_changes_the_answer(outlive, folder, plain_answers):
    result = outlive("generate", "hello", "--model", folder, "--max-tokens", "20", "--max-kv-size", "2")
    assert result.returncode == 0, result.stderr
    assert result.stdout != plain_answers["greedy"] + "\n"


def test_a_closed_pipe_ends_without_a_traceback(environment, folder):
    """The reader leaves before the text comes."""
    options = ["generate", "hello", "--model", str(folder), "--max-tokens", "300"]
    process = subprocess.Popen([*OUTLIVE, *options], env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    process.stdout.close()
    message = process.stderr.read().decode()
    assert process.wait(60) == 1
    assert "Traceback" not in message
    assert "BrokenPipe" not in message
    process.stderr.close()


MISTAKES = {
    "no prompt": ([], "there is no PROMPT"),
    "two prompts": (["x", "--prompt-file", "f"], "are both given"),
    "no file": (["--prompt-file", "/nowhere/p"], "cannot read /nowhere/p"),
    "raw": (["x", "--raw", "--system", "s"], "--raw continues the prompt as it is"),
    "messages": (["--messages", "{messages}"], "message 2 is not like"),
    "messages no list": (["--messages", "{object}"], "is no list of messages"),
    "messages no JSON": (["--messages", "{broken}"], "is no JSON"),
    "bias": (["x", "--logit-bias", "a:1"], "--logit-bias is 'a:1'"),
    "top k": (["x", "--top-k", "-1"], "top-k is -1"),
    "stop": (["x", "--stop", ""], "stop string is empty"),
    "bits": (["x", "--kv-bits", "3"], "--kv-bits is 3"),
    "window": (["x", "--max-kv-size", "0"], "--max-kv-size is 0"),
    "both": (["x", "--max-kv-size", "9", "--kv-bits", "8"], "do not go together"),
    "quantize": (["x", "--quantize", "int4"], "there is no quantization 'int4'"),
    "cache": (["x", "--prompt-cache", "/nowhere/c"], "cannot open"),
    "cache folder": (["x", "--save-prompt-cache", "/nowhere/c"], "cannot write /nowhere/c"),
}


@pytest.mark.parametrize(("arguments", "complaint"), MISTAKES.values(), ids=MISTAKES.keys())
def test_a_mistake_is_one_sentence(outlive, folder, tmp_path, arguments, complaint):
    contents = {"messages": '[{"role": "user", "content": "a"}, {"content": "b"}]', "object": "{}", "broken": "[{"}
    paths = {}
    for name, content in contents.items():
        paths[name] = tmp_path / name
        paths[name].write_text(content)
    given = [
        argument.format(**paths) if argument in ("{messages}", "{object}", "{broken}") else argument
        for argument in arguments
    ]
    result = outlive("generate", *given, "--model", folder, "--max-tokens", "3", "--json")
    assert_one_sentence(result, complaint)


def test_standard_input_that_is_no_text_is_refused(environment, folder):
    assert_one_sentence(
        piped(environment, b"ab\xff", "generate", "-", "--model", folder), "standard input is no UTF-8 text (byte 2)"
    )


def test_convert_writes_a_folder_that_answers_the_same(outlive, tiny_model, tmp_path):
    result = outlive("convert", tiny_model, tmp_path / "mlx")
    assert result.returncode == 0, result.stderr
    assert "digests in SHA256SUMS" in result.stderr
    options = ["--max-tokens", "12", "--temperature", "0.7", "--seed", "5", "--model"]
    texts = {outlive("generate", "hello", *options, model).stdout for model in (tiny_model, tmp_path / "mlx")}
    assert len(texts) == 1
    half = outlive("convert", tmp_path / "mlx", tmp_path / "half", "--dequantize", "--dtype", "float16")
    assert half.returncode == 0, half.stderr
    four = outlive("convert", tmp_path / "half", tmp_path / "four", "--quantize", "affine4:32")
    assert four.returncode == 0, four.stderr
    assert_one_sentence(outlive("convert", tiny_model, tmp_path / "four"), "exists already")
    assert_one_sentence(outlive("convert", tiny_model, tmp_path / "x", "--dtype", "int8"), "--dtype is 'int8'")
    assert_one_sentence(
        outlive("convert", tiny_model, tmp_path / "x", "--quantize", "mxfp4", "--dequantize"), "do not go"
    )


def test_perplexity_is_that_of_an_independent_computation(outlive, environment, tiny_model, tmp_path):
    text = "hello world, " * 12
    (tmp_path / "t").write_text(text)
    found = json.loads(outlive("perplexity", tmp_path / "t", "--model", tiny_model, "--context", "40", "--json").stdout)
    ids = load(tiny_model).tokenizer.encode(text)
    losses = []
    for begin in range(0, len(ids), 40):
        piece, reference = ids[begin : begin + 40], NumpyLlama(tiny_model)
        rows = reference.logits(piece).astype(np.float64)
        losses += [math.log(np.exp(row).sum()) - row[token] for row, token in zip(rows, piece[1:], strict=False)]
    assert found["tokens"] == len(losses)
    assert found["value"] == pytest.approx(math.exp(np.mean(losses)), rel=1e-3)
    text_form = piped(environment, text.encode(), "perplexity", "-", "--model", tiny_model, "--context", "40").stdout
    assert re.fullmatch(r"perplexity: [\d.]+ \+- [\d.]+ over \d+ tokens\n", text_form)
    assert_one_sentence(outlive("perplexity", tmp_path / "t", "--model", tiny_model, "--context", "1"), "context is 1")
    (tmp_path / "t").write_text("")
    assert_one_sentence(
        outlive("perplexity", tmp_path / "t", "--model", tiny_model, "--context", "9"), "the text has 0 tokens"
    )


class Terminal:
    """A process at a pseudo-terminal."""

    def __init__(self, environment: dict[str, str], *arguments: str) -> None:
        self.controller, terminal = pty.openpty()
        streams = {"stdin": terminal, "stdout": terminal, "stderr": terminal}
        self.process = subprocess.Popen(
            [*OUTLIVE, *map(str, arguments)], env=environment, start_new_session=True, **streams
        )
        os.close(terminal)
        self.seen = ""

    def until(self, text: str, seconds: float = 120.0) -> str:
        """What was written up to and with ``text``."""
        deadline = time.monotonic() + seconds
        while text not in self.seen:
            assert time.monotonic() < deadline, self.seen
            self.seen += os.read(self.controller, 4096).decode("utf-8", "replace")
        found, _, self.seen = self.seen.partition(text)
        return found + text

    def say(self, text: str) -> None:
        os.write(self.controller, text.encode())

    def end(self) -> int:
        """The exit status, after reading what is left."""
        try:
            while piece := os.read(self.controller, 4096):
                self.seen += piece.decode("utf-8", "replace")
        except OSError:
            pass  # how Linux reports that the other end of a pseudo-terminal is closed
        os.close(self.controller)
        return self.process.wait(60)


def test_a_conversation_at_a_terminal(environment, folder, tmp_path):
    """Answers, history, commands, an interrupted answer, the end: as a person would see them."""
    settings = environment | {"XDG_CACHE_HOME": str(tmp_path), "TERM": "dumb"}
    talk = Terminal(settings, "chat", "--model", folder, "--max-tokens", "6", "--system", "s")
    talk.until(">>> ")
    talk.say("hello\n")
    first = talk.until(">>> ")
    model = load(folder)
    messages = [{"role": "system", "content": "s"}, {"role": "user", "content": "hello"}]
    answer = "".join(model.stream(messages, max_tokens=6))
    assert answer.split("\n")[0] in first
    talk.say("two \\\n")
    talk.until("... ")
    talk.say("lines\n")
    talk.until(">>> ")
    talk.say(f"/save {tmp_path / 'talk.json'}\n")
    talk.until("wrote")
    saved = json.loads((tmp_path / "talk.json").read_text())
    assert [message["role"] for message in saved] == ["system", "user", "assistant", "user", "assistant"]
    assert (saved[2]["content"], saved[3]["content"]) == (answer, "two \nlines")
    for command, reply in [("/undo", "2 messages are left"), ("/nope", "no command /nope"), ("/save", "needs the name"),
                           ("/system other", "forgotten"), ("/reset", "forgotten"), ("/help", "show this list")]:  # fmt: skip
        talk.until(">>> ")
        talk.say(f"{command}\n")
        talk.until(reply)
    talk.until(">>> ")
    talk.say("\x04")
    assert talk.end() == 0
    assert "hello" in (tmp_path / "outlive" / "chat_history").read_text()


def test_ctrl_c_ends_an_answer_and_not_the_chat(environment, folder):
    talk = Terminal(
        environment | {"TERM": "dumb"}, "chat", "--model", folder, "--max-tokens", "500", "--logit-bias", "70:100"
    )
    talk.until(">>> ")
    talk.say("hello\n")
    character = load(folder).tokenizer.token_bytes(70).decode()
    talk.until(character * 3)
    os.kill(talk.process.pid, signal.SIGINT)
    talk.until("outlive: interrupted")
    talk.until(">>> ")
    talk.say("/exit\n")
    assert talk.end() == 0


def test_a_chat_reads_a_pipe_too(environment, folder):
    result = piped(environment, b"hello\n/exit\n", "chat", "--model", folder, "--max-tokens", "5", "--verbose")
    assert result.returncode == 0, result.stderr
    assert result.stdout == "".join(load(folder).stream("hello", max_tokens=5)) + "\n"
    assert "answer: 5 tokens" in result.stderr
    assert_one_sentence(piped(environment, b"", "chat", "--model", folder, "--max-tokens", "0"), "--max-tokens is 0")


def test_a_chat_needs_a_template(environment, tmp_path):
    model = TinyLlama(metadata={"tokenizer.chat_template": None}).write(tmp_path / "m.gguf")
    assert_one_sentence(piped(environment, b"", "chat", "--model", model), "has no chat template")


def test_doctor_as_json(outlive):
    found = json.loads(outlive("doctor", "--json").stdout)
    assert found.keys() == {"versions", "machine", "devices", "caches"}
    assert all(isinstance(line, str) for lines in found.values() for line in lines)


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_scripts_name_the_command(outlive, shell):
    assert "_OUTLIVE_COMPLETE" in outlive("completion", shell).stdout
    assert_one_sentence(outlive("completion", "cmd"), "no completion for 'cmd'")


def test_loading_with_quantization_never_holds_the_file(environment, tmp_path):
    """Peak memory, on a file of 1 GB: below the result plus 1.2 times the largest tensor plus 250 MB."""
    changes = {"hidden_size": 2048, "intermediate_size": 20480, "num_attention_heads": 8, "head_dim": 256}
    config = config_of("llama") | changes
    queries, keys = 8 * 256, config["num_key_value_heads"] * 256
    shapes = {f"{name}.weight": (config["vocab_size"], 2048) for name in ("model.embed_tokens", "lm_head")}
    shapes["model.norm.weight"] = (2048,)
    parts = {"self_attn.q_proj": (queries, 2048), "self_attn.k_proj": (keys, 2048), "self_attn.v_proj": (keys, 2048)}
    parts |= {"self_attn.o_proj": (2048, queries), "mlp.gate_proj": (20480, 2048), "mlp.up_proj": (20480, 2048)}
    parts |= {"mlp.down_proj": (2048, 20480), "input_layernorm": (2048,), "post_attention_layernorm": (2048,)}
    for layer in range(2):
        shapes |= {f"model.layers.{layer}.{part}.weight": shape for part, shape in parts.items()}
    folder = write_checkpoint(tmp_path / "large", config=config)
    total = write_zeros(folder / "model.safetensors", shapes)
    assert total > 1e9
    program = (
        "import sys; from outlive.lm.loading import load; model = load(sys.argv[1], quantize='affine4');"
        "print([line for line in open('/proc/self/status') if line.startswith('VmHWM')][0].split()[1])"
    )
    command = [sys.executable, "-c", program, str(folder)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    result, largest = total * (4 + 2 * 32 / 64) / 32, 20480 * 2048 * 4
    assert result / 2 < int(done.stdout) * 1024 < result + 1.2 * largest + 250e6


def write_zeros(path: Path, shapes: dict[str, tuple[int, ...]]) -> int:
    """A safetensors file of float32 zeros that takes no room on the disk; returns the bytes of its tensors."""
    header, end = {}, 0
    for name, shape in shapes.items():
        begin, end = end, end + 4 * math.prod(shape)
        header[name] = {"dtype": "F32", "shape": shape, "data_offsets": [begin, end]}
    text = json.dumps(header).encode()
    with path.open("wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        file.truncate(8 + len(text) + end)
    return end


def test_every_option_of_generate_is_used_in_a_test(outlive):
    options = set(re.findall(r"^  (?:-\w, )?(--[\w-]+)", outlive("generate", "--help").stdout, re.MULTILINE)) - {
        "--help"
    }
    assert len(options) > 25
    texts = "".join(path.read_text() for path in Path(__file__).parent.glob("test_*.py"))
    assert {option for option in options if f'"{option}"' not in texts} == set()
