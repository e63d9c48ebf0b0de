"""What a tokenizer offers, and what both kinds of files with vocabularies have in common."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol


class Tokenizer(Protocol):
    """Text to token ids and back.

    Attributes:
        size: number of tokens.
        bos: id of the token that begins a text, or None.
        ends: ids of tokens that end an answer.
        control_tokens: names and ids of the tokens that steer the model and are no text.
        drops_first_space: whether a text's first token is written without its leading space.
    """

    size: int
    bos: int | None
    ends: frozenset[int]
    drops_first_space: bool

    @property
    def control_tokens(self) -> Mapping[str, int]: ...

    def encode(self, text: str, *, begin: bool = True) -> list[int]:
        """Token ids of ``text``; ``begin`` puts the beginning token before it where the vocabulary asks for one."""
        ...

    def encode_rendered(self, text: str) -> list[int]:
        """Token ids of what a chat template wrote."""
        ...

    def token_bytes(self, token: int) -> bytes:
        """The bytes that a token stands for: none for a control token, or for an id beyond the vocabulary."""
        ...

    def token_text(self, token: int | None) -> str:
        """The token as the vocabulary writes it, such as ``<|im_end|>``; empty for None."""
        ...


# Tokens that end a turn in some vocabulary, whatever the metadata calls the end.
TURN_ENDS = ("<|im_end|>", "<|eot_id|>", "<|end_of_text|>", "<|endoftext|>", "<end_of_turn>", "</s>")

WORD_SPACE = "\u2581"  # how SentencePiece writes a space


def _byte_characters() -> dict[str, int]:
    """GPT-2's writing of bytes as characters: printable Latin-1 as itself, the others from U+0100 on, in order."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in printable]
    return {chr(byte): byte for byte in printable} | {chr(0x100 + i): byte for i, byte in enumerate(others)}


_BYTE_OF_CHARACTER = {character: bytes([byte]) for character, byte in _byte_characters().items()}


def byte_level_bytes(text: str) -> bytes:
    """The bytes of a token in GPT-2's writing."""
    return b"".join(_BYTE_OF_CHARACTER.get(character, character.encode()) for character in text)


def sentencepiece_bytes(text: str) -> bytes:
    """The bytes of a token in SentencePiece's writing: ``<0x0A>`` is a byte, U+2581 a space."""
    if len(text) == 6 and text.startswith("<0x") and text.endswith(">"):
        try:
            return bytes([int(text[3:5], 16)])
        except ValueError:
            pass  # a token that only looks like a byte is text
    return text.replace(WORD_SPACE, " ").encode()
