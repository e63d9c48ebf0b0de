"""A language model ready to use: network, tokenizer and chat template."""

from __future__ import annotations

import contextlib
from collections.abc import Generator, Iterator, Sequence
from dataclasses import dataclass

from outlive.lm.chat_template import ChatTemplate, Message
from outlive.lm.detokenizer import Detokenizer
from outlive.lm.errors import ModelError
from outlive.lm.families import Network
from outlive.lm.generation import GeneratedToken, GenerationStats, generate_steps
from outlive.lm.progress import Progress, Silent
from outlive.lm.prompt_cache import PromptCache
from outlive.lm.sampling import Sampler
from outlive.lm.stops import StopStrings
from outlive.lm.tokenizer import Tokenizer


class LanguageModel:
    """A network with its text.

    Attributes:
        name: as the file states it, or the file's name.
        license: as the file states it, or None.
        network, tokenizer: the parts.
        chat_template: the model's own, or None for a model that only continues text.
    """

    def __init__(
        self,
        name: str,
        license: str | None,
        network: Network,
        tokenizer: Tokenizer,
        chat_template: ChatTemplate | None,
    ) -> None:
        self.name = name
        self.license = license
        self.network = network
        self.tokenizer = tokenizer
        self.chat_template = chat_template

    def encode(self, prompt: str | Sequence[Message], *, tools: Sequence[Message] | None = None) -> list[int]:
        """Token ids of a prompt: a user's message, or messages; plain text where the model has no chat template.

        Raises:
            PromptError: if the template refuses the messages.
            ModelError: if the template fails, or messages are given to a model without one.
        """
        if self.chat_template is None:
            if not isinstance(prompt, str):
                raise ModelError(f"{self.name} has no chat template, so it takes plain text, not messages")
            return self.tokenizer.encode(prompt)
        messages = [{"role": "user", "content": prompt}] if isinstance(prompt, str) else prompt
        return self.tokenizer.encode_rendered(self.chat_template.render(messages, tools=tools))

    def stream(
        self,
        prompt: str | Sequence[Message],
        *,
        max_tokens: int = 256,
        sampler: Sampler | None = None,
        stop: Sequence[str] = (),
        cache: PromptCache | None = None,
        progress: Progress | None = None,
        stats: GenerationStats | None = None,
    ) -> Iterator[str]:
        """Yield the answer as pieces of text, none empty and none ending inside a character.

        It ends before the first of the ``stop`` strings. ``cache`` is reused and extended, ``stats`` is filled while the
        answer grows. Raises like :meth:`encode` and :func:`outlive.lm.generation.generate_steps`.
        """
        ids = self.encode(prompt)
        pieces = self.generate(
            ids, max_tokens=max_tokens, sampler=sampler, stop=stop, cache=cache, progress=progress, stats=stats
        )
        with contextlib.closing(pieces):
            for piece in pieces:
                if piece.text:
                    yield piece.text

    def generate(
        self,
        ids: Sequence[int],
        *,
        max_tokens: int = 256,
        sampler: Sampler | None = None,
        stop: Sequence[str] = (),
        cache: PromptCache | None = None,
        progress: Progress | None = None,
        stats: GenerationStats | None = None,
    ) -> Generator[Piece, None, None]:
        """Like :meth:`stream`, from token ids, with the token behind each piece; its text may be empty."""
        stats = stats or GenerationStats()
        detokenizer, stops = Detokenizer(self.tokenizer), StopStrings(stop)
        steps = generate_steps(
            self.network,
            ids,
            sampler or Sampler(),
            max_tokens=max_tokens,
            ends=self.tokenizer.ends,
            progress=progress or Silent(),
            stats=stats,
            cache=cache,
        )
        with contextlib.closing(steps):
            for step in steps:
                yield Piece(stops.add(detokenizer.add(step.id)), step)
                if stops.found is not None:
                    stats.finish_reason = "stop"
                    return
        if rest := stops.add(detokenizer.finish()) + stops.finish():
            yield Piece(rest, None)


@dataclass(frozen=True, slots=True)
class Piece:
    """Text that a token completed; ``token`` is None for what was held back until the end."""

    text: str
    token: GeneratedToken | None
