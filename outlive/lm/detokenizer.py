"""Token ids to text as they come."""

from __future__ import annotations

import codecs

from outlive.lm.tokenizer import Tokenizer


class Detokenizer:
    """Streams text: a character whose bytes are spread over several tokens is held back until it is whole.

    The pieces, joined, are the decoding of all bytes together, with U+FFFD for what is no UTF-8.
    """

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")

    def add(self, token: int) -> str:
        """The text that ``token`` completes; empty while a character is unfinished."""
        return self._decoder.decode(self._tokenizer.token_bytes(token))

    def finish(self) -> str:
        """What is left when no token follows: U+FFFD if a character was cut short."""
        return self._decoder.decode(b"", final=True)
