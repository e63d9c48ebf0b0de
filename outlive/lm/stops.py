"""Strings that end an answer, found in text that comes in pieces."""

from __future__ import annotations

from collections.abc import Sequence

from outlive.lm.errors import PromptError


class StopStrings:
    """Lets text through up to the one of ``strings`` that is complete first; holds back what may be the beginning of one.

    Attributes:
        found: the string that ended the text, or None.

    Raises:
        PromptError: if one of them is empty.
    """

    def __init__(self, strings: Sequence[str]) -> None:
        if any(not text for text in strings):
            raise PromptError("a stop string is empty; give some text")
        self._strings = tuple(strings)
        self._held = ""
        self.found: str | None = None

    def add(self, piece: str) -> str:
        """What may be shown now that ``piece`` came; nothing after a string was found."""
        if self.found is not None:
            return ""
        text = self._held + piece
        complete = [(text.find(stop) + len(stop), -len(stop), stop) for stop in self._strings if stop in text]
        if complete:  # the one that is complete first, so that it does not matter how the text was cut
            end, _, self.found = min(complete)
            self._held = ""
            return text[: end - len(self.found)]
        held = max((self._overlap(text, stop) for stop in self._strings), default=0)
        self._held = text[len(text) - held :]
        return text[: len(text) - held]

    def finish(self) -> str:
        """What was held back, when no more text follows."""
        held, self._held = self._held, ""
        return held

    @staticmethod
    def _overlap(text: str, stop: str) -> int:
        """The length of the longest end of ``text`` that begins ``stop``."""
        lengths = range(min(len(text), len(stop) - 1), 0, -1)
        return next((length for length in lengths if text.endswith(stop[:length])), 0)
