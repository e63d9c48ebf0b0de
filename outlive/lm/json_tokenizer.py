"""Tokenizers from a folder's tokenizer.json, read by the ``tokenizers`` library."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from outlive.io.checkpoint import read_json
from outlive.lm.errors import ModelError
from outlive.lm.tokenizer import TURN_ENDS, byte_level_bytes, sentencepiece_bytes

if TYPE_CHECKING:
    import tokenizers


class JSONTokenizer:
    """A :class:`outlive.lm.tokenizer.Tokenizer`; ``settings`` is tokenizer_config.json, ``stated_ends`` the ids of
    ending tokens in other files.

    Raises:
        ModelError: if the file is missing, or the library or this class cannot make sense of it.
    """

    def __init__(
        self, folder: Path, settings: Mapping[str, Any], stated_ends: frozenset[int], vocabulary_size: int
    ) -> None:
        self.path = folder / "tokenizer.json"
        self._library = self._read()
        self.size = self._library.get_vocab_size(with_added_tokens=True)
        self._added = self._library.get_added_tokens_decoder()
        highest = max([self.size - 1, *self._added], default=0)
        if highest >= vocabulary_size:
            raise ModelError(
                f"{self.path} has the token {highest}, but config.json a vocabulary of {vocabulary_size}; they are not of "
                "one model"
            )
        kinds = list(_decoder_kinds(read_json(self.path).get("decoder")))
        self._bytes_of = byte_level_bytes if "ByteLevel" in kinds else sentencepiece_bytes
        self.drops_first_space = "Strip" in kinds or "Metaspace" in kinds
        self.bos = self._named(settings.get("bos_token"))
        named = [self._library.token_to_id(name) for name in TURN_ENDS]
        ends = {self._named(settings.get("eos_token")), *named}
        self.ends = frozenset(token for token in ends if token is not None) | stated_ends

    def encode(self, text: str, *, begin: bool = True) -> list[int]:
        ids = self._library.encode(text, add_special_tokens=begin).ids
        if begin and self.bos is not None and ids[:2] == [self.bos, self.bos]:
            del ids[0]  # the text began with the token already
        return ids

    def encode_rendered(self, text: str) -> list[int]:
        """Token ids of what a chat template wrote: templates in these folders write the beginning token themselves."""
        return self._library.encode(text, add_special_tokens=False).ids

    def token_bytes(self, token: int) -> bytes:
        if (added := self._added.get(token)) is not None:
            return b"" if added.special else added.content.encode()
        text = self._library.id_to_token(token)
        return b"" if text is None else self._bytes_of(text)

    def token_text(self, token: int | None) -> str:
        return "" if token is None else self._library.id_to_token(token) or ""

    @cached_property
    def control_tokens(self) -> dict[str, int]:
        return {added.content: token for token, added in self._added.items() if added.special}

    def serialized(self) -> str:
        """The tokenizer.json that was read."""
        return self.path.read_text(encoding="utf-8")

    def _read(self) -> tokenizers.Tokenizer:
        import tokenizers  # 20 ms that only a loaded model needs

        if not self.path.is_file():
            raise ModelError(
                f"{self.path.parent} has no tokenizer.json; get the folder anew, or convert its tokenizer to one"
            )
        try:
            return tokenizers.Tokenizer.from_file(str(self.path))
        except Exception as error:  # the library raises plain Exception
            reason = str(error).partition("\n")[0]
            raise ModelError(f"{self.path} is no tokenizer that the tokenizers library reads ({reason})") from error

    def _named(self, token: Any) -> int | None:
        """The id of a token that settings name, as text or as an object with the text."""
        text = token.get("content") if isinstance(token, Mapping) else token
        return self._library.token_to_id(text) if isinstance(text, str) else None


def _decoder_kinds(decoder: Any) -> Iterator[str]:
    if isinstance(decoder, Mapping):
        yield str(decoder.get("type"))
        for part in decoder.get("decoders") or ():
            yield from _decoder_kinds(part)
