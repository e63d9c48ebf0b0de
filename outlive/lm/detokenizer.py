"""Token ids to text as they come."""

from __future__ import annotations

import codecs

from outlive.lm.tokenizer import Tokenizer


class Detokenizer:
    """Streams text: a character whose bytes are spread over several tokens is held back until it is whole.

    The pieces, joined, are the decoding of all bytes together, with U+FFFD for what is no UTF-8; a vocabulary that
    writes a space before the first word gets it taken away.
    """

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._drop_space = tokenizer.drops_first_space

    def add(self, token: int) -> str:
        """The text that ``token`` completes; empty while a character is unfinished."""
        raw = self._tokenizer.token_bytes(token)
        if self._drop_space and raw:
            self._drop_space = False
            raw = raw.removeprefix(b" ")
        return self._decoder.decode(raw)

    def finish(self) -> str:
        """What is left when no token follows: U+FFFD if a character was cut short."""
        return self._decoder.decode(b"", final=True)
