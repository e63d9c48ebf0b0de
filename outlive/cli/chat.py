"""``outlive chat``: a conversation at the terminal."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from outlive.cli.devices import choose_device
from outlive.cli.errors import say
from outlive.cli.generate import print_pieces, report
from outlive.cli.options import SamplingArguments
from outlive.cli.progress import make_progress
from outlive.io.errors import UserError
from outlive.io.replace import replace_file
from outlive.lm.cache import CacheOptions
from outlive.lm.generation import GenerationStats
from outlive.lm.loading import load
from outlive.lm.model import LanguageModel
from outlive.lm.progress import Silent
from outlive.lm.prompt_cache import PromptCache
from outlive.lm.store import cache_folder

HISTORY_LINES = 1000


@dataclass(frozen=True, slots=True)
class ChatOptions:
    """The options of one call, named as on the command line."""

    model: str
    revision: str | None
    quantize: str | None
    device: str | None
    system: str | None
    max_tokens: int
    stop: list[str]
    sampling: SamplingArguments
    cache: CacheOptions
    verbose: bool


def chat(options: ChatOptions) -> None:
    """Read messages until the input ends, and answer each."""
    if options.max_tokens < 1:
        raise UserError(f"--max-tokens is {options.max_tokens}, but at least 1 token must be asked for")
    options.sampling.sampler()  # refuses values without meaning before anything is loaded
    choose_device(options.device)
    model = load(options.model, quantize=options.quantize, revision=options.revision, progress=make_progress())
    if model.chat_template is None:
        raise UserError(f"{model.name} has no chat template; use 'outlive generate --raw'")
    talk = Conversation(model, options)
    say(f"{model.name} on {options.device or 'the default device'}; /help lists commands, Ctrl-D ends")
    with_history = sys.stdin.isatty() and _load_history()
    try:
        while (line := _read_message()) is not None:
            if not talk.take(line):
                break
    finally:
        if with_history:
            _save_history()


class Conversation:
    """The messages so far, with their keys and values."""

    def __init__(self, model: LanguageModel, options: ChatOptions) -> None:
        self._model = model
        self._options = options
        self._cache = PromptCache(model.network, options.cache)
        self._system = options.system
        self._messages: list[dict[str, str]] = []
        self._commands: dict[str, tuple[Callable[[str], None], str]] = {
            "/help": (self._help, "show this list"),
            "/reset": (self._reset, "forget the conversation"),
            "/system": (self._set_system, "TEXT: set the system message and forget the conversation"),
            "/undo": (self._undo, "forget the last message and its answer"),
            "/save": (self._save, "FILE: write the messages as JSON, for --messages"),
            "/exit": (lambda rest: None, "end the chat"),
        }

    def take(self, line: str) -> bool:
        """Handle a command or a message; returns whether the chat goes on."""
        if not line.strip():
            return True
        name, _, rest = line.strip().partition(" ")
        try:
            if name == "/exit":
                return False
            if name in self._commands:
                self._commands[name][0](rest.strip())
            elif name.startswith("/"):
                say(f"there is no command {name}; /help lists them")
            else:
                self._answer(line)
        except UserError as error:  # a chat goes on after a mistake
            say(f"outlive: {error}")
        return True

    def messages(self) -> list[dict[str, str]]:
        system = [] if self._system is None else [{"role": "system", "content": self._system}]
        return system + self._messages

    def _answer(self, text: str) -> None:
        self._messages.append({"role": "user", "content": text})
        options, stats, said = self._options, GenerationStats(), []
        sampler = options.sampling.sampler()
        try:
            ids = self._model.encode(self.messages())
            pieces = self._model.generate(
                ids,
                max_tokens=options.max_tokens,
                sampler=sampler,
                stop=options.stop,
                cache=self._cache,
                progress=Silent(),
                stats=stats,
            )
            interrupted = print_pieces(said.append(piece.text) or piece.text for piece in pieces)  # type: ignore[func-returns-value]
        except UserError:
            del self._messages[-1]  # what cannot be answered is no part of the conversation
            raise
        self._messages.append({"role": "assistant", "content": "".join(said)})
        if options.verbose:
            report(self._model, sampler, stats, interrupted)

    def _help(self, rest: str) -> None:
        for name, (_, text) in self._commands.items():
            say(f"{name:<8} {text}")
        say("A line that ends with \\ goes on in the next one.")

    def _reset(self, rest: str) -> None:
        self._messages.clear()
        say("the conversation is forgotten")

    def _set_system(self, rest: str) -> None:
        self._system = rest or None
        self._reset(rest)

    def _undo(self, rest: str) -> None:
        del self._messages[-2:]
        say(f"{len(self._messages)} messages are left")

    def _save(self, rest: str) -> None:
        if not rest:
            raise UserError("/save needs the name of a file")
        path = Path(rest).expanduser()
        replace_file(path, json.dumps(self.messages(), indent=1, ensure_ascii=False).encode() + b"\n")
        say(f"wrote {path}")


def _read_message() -> str | None:
    """Lines up to one that does not end with a backslash; None at the end of the input, empty after Ctrl-C."""
    lines: list[str] = []
    while True:
        try:
            line = input("... " if lines else ">>> ") if sys.stdin.isatty() else input()
        except EOFError:
            return "\n".join(lines) if lines else None
        except KeyboardInterrupt:
            print(file=sys.stderr)
            return ""
        except UnicodeDecodeError:
            raise UserError("standard input is no UTF-8 text; convert it first") from None
        if not line.endswith("\\"):
            return "\n".join([*lines, line])
        lines.append(line[:-1])


def _load_history() -> bool:
    """Line editing with the messages of earlier chats, where this Python has it."""
    try:
        import readline
    except ImportError:
        return False
    try:
        readline.read_history_file(cache_folder() / "chat_history")
    except OSError:
        pass  # there is none yet, or it cannot be read: a chat works without
    return True


def _save_history() -> None:
    import readline

    readline.set_history_length(HISTORY_LINES)
    try:
        cache_folder().mkdir(parents=True, exist_ok=True)
        readline.write_history_file(cache_folder() / "chat_history")
    except OSError as error:
        say(f"the history of the chat could not be kept: {(error.strerror or str(error)).lower()}")
