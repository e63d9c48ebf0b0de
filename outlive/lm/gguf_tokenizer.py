"""Tokenizers from the vocabulary in a GGUF file's metadata, built with the ``tokenizers`` library."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from outlive.lm.errors import ModelError
from outlive.lm.metadata import Metadata
from outlive.lm.tokenizer import TURN_ENDS, WORD_SPACE, byte_level_bytes, sentencepiece_bytes

if TYPE_CHECKING:
    import tokenizers

# Types of tokens in `tokenizer.ggml.token_type`.
_NORMAL, _UNKNOWN, _CONTROL, _USER_DEFINED = 1, 2, 3, 4

# How text is cut before merges apply, after `tokenizer.ggml.pre`. Each is a published property of its vocabulary: cut
# every digit off first or not, then GPT-2's own pattern (None) or the one given.
_LLAMA3_PATTERN = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}"
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
_QWEN2_PATTERN = _LLAMA3_PATTERN.replace(r"\p{N}{1,3}", r"\p{N}")


@dataclass(frozen=True, slots=True)
class _Cut:
    single_digits: bool = False
    pattern: str | None = None
    ignore_merges: bool = False


_CUTS = {
    "default": _Cut(),
    "gpt-2": _Cut(),
    "smollm": _Cut(single_digits=True),
    "starcoder": _Cut(single_digits=True),
    "llama-bpe": _Cut(pattern=_LLAMA3_PATTERN, ignore_merges=True),
    "qwen2": _Cut(pattern=_QWEN2_PATTERN),
}


class GGUFTokenizer:
    """A :class:`outlive.lm.tokenizer.Tokenizer` from a vocabulary of byte pairs (``gpt2``) or of SentencePiece
    (``llama``).

    Raises:
        ModelError: for a kind of vocabulary that is not supported, or one that contradicts itself.
    """

    def __init__(self, metadata: Metadata) -> None:
        self._where = metadata.where
        kind = metadata.text("tokenizer.ggml.model")
        if kind not in ("gpt2", "llama"):
            raise ModelError(
                f"{self._where} has a tokenizer of the kind {kind!r}; only 'gpt2' (byte pairs) and 'llama' (SentencePiece) "
                "are supported"
            )
        self._sentencepiece = kind == "llama"
        self.drops_first_space = self._sentencepiece and metadata.flag("tokenizer.ggml.add_space_prefix", True)
        self._tokens = metadata.texts("tokenizer.ggml.tokens")
        self.size = len(self._tokens)
        self._types = [1] * self.size
        if "tokenizer.ggml.token_type" in metadata:
            self._types = metadata.integers("tokenizer.ggml.token_type", self.size)
        self.bos = metadata.index("tokenizer.ggml.bos_token_id", self.size)
        self.eos = metadata.index("tokenizer.ggml.eos_token_id", self.size)
        self._adds_bos = metadata.flag("tokenizer.ggml.add_bos_token", self._sentencepiece)
        self._library = self._build(metadata)
        self.ends = self._find_ends(metadata)

    def encode(self, text: str, *, begin: bool = True) -> list[int]:
        """Token ids of ``text``; ``begin`` puts the beginning token before it where the vocabulary asks for one."""
        ids = self._library.encode(text, add_special_tokens=False).ids
        if begin and self._adds_bos and self.bos is not None and ids[:1] != [self.bos]:
            ids.insert(0, self.bos)
        return ids

    def encode_rendered(self, text: str) -> list[int]:
        """Token ids of what a chat template wrote; files state the beginning token apart from their templates."""
        return self.encode(text)

    def serialized(self) -> str:
        """The same as a tokenizer.json."""
        import tokenizers
        from tokenizers.decoders import ByteFallback, ByteLevel, Fuse, Replace, Sequence, Strip
        from tokenizers.processors import TemplateProcessing

        library = tokenizers.Tokenizer.from_str(self._library.to_str())
        if self._sentencepiece:
            steps = [Replace(WORD_SPACE, " "), ByteFallback(), Fuse()]
            library.decoder = Sequence([*steps, Strip(" ", 1, 0)] if self.drops_first_space else steps)
        else:
            library.decoder = ByteLevel()
        if self._adds_bos and self.bos is not None:
            name = self.token_text(self.bos)
            library.post_processor = TemplateProcessing(single=f"{name} $A", special_tokens=[(name, self.bos)])
        return library.to_str()

    def token_bytes(self, token: int) -> bytes:
        """The bytes that a token stands for: none for a control token, or for an id beyond the vocabulary."""
        if not 0 <= token < self.size or self._types[token] == _CONTROL:
            return b""
        text = self._tokens[token]
        if self._types[token] == _USER_DEFINED:
            return text.encode()
        return sentencepiece_bytes(text) if self._sentencepiece else byte_level_bytes(text)

    def token_text(self, token: int | None) -> str:
        """The token as the vocabulary writes it, such as ``<|im_end|>``; empty for None."""
        return "" if token is None else self._tokens[token]

    @cached_property
    def control_tokens(self) -> dict[str, int]:
        """Names and ids of the tokens that steer the model and are no text."""
        return {
            text: i for i, (text, kind) in enumerate(zip(self._tokens, self._types, strict=True)) if kind == _CONTROL
        }

    def _find_ends(self, metadata: Metadata) -> frozenset[int]:
        keys = ("eos", "eot", "eom")
        stated = [metadata.index(f"tokenizer.ggml.{key}_token_id", self.size) for key in keys]
        named = [self.control_tokens.get(name) for name in TURN_ENDS]
        return frozenset(token for token in stated + named if token is not None)

    def _build(self, metadata: Metadata) -> tokenizers.Tokenizer:
        import tokenizers  # 20 ms that only a loaded model needs

        vocabulary = {text: index for index, text in enumerate(self._tokens)}
        if len(vocabulary) != self.size:
            raise ModelError(f"{self._where}: its vocabulary has {self.size - len(vocabulary)} tokens twice")
        try:
            library = (
                self._build_pieces(metadata, vocabulary)
                if self._sentencepiece
                else self._build_pairs(metadata, vocabulary)
            )
        except ModelError:
            raise
        except Exception as error:  # the library raises plain Exception for merges outside the vocabulary
            raise ModelError(f"{self._where}: its merges do not fit its vocabulary ({error})") from error
        whole = {_CONTROL: True, _USER_DEFINED: False}
        library.add_tokens(
            [
                tokenizers.AddedToken(text, special=whole[kind], normalized=False)
                for text, kind in zip(self._tokens, self._types, strict=True)
                if kind in whole
            ]
        )
        return library

    def _build_pairs(self, metadata: Metadata, vocabulary: dict[str, int]) -> tokenizers.Tokenizer:
        from tokenizers import Tokenizer
        from tokenizers.models import BPE

        cut = self._cut(metadata)
        merges = [self._merge(line) for line in metadata.texts("tokenizer.ggml.merges")]
        library = Tokenizer(BPE(vocab=vocabulary, merges=merges, ignore_merges=cut.ignore_merges))
        library.pre_tokenizer = _pre_tokenizer(cut)
        return library

    def _build_pieces(self, metadata: Metadata, vocabulary: dict[str, int]) -> tokenizers.Tokenizer:
        """SentencePiece joins the neighbours whose union has the highest score: byte pairs whose merges are all ways to
        cut a token into two, the best token first."""
        from tokenizers import Tokenizer
        from tokenizers.models import BPE
        from tokenizers.normalizers import Prepend, Replace, Sequence

        scores = metadata.numbers("tokenizer.ggml.scores", self.size)
        joined = {text: scores[i] for i, text in enumerate(self._tokens) if self._types[i] in (_NORMAL, _USER_DEFINED)}
        merges = [
            (-score, text[:cut], text[cut:])
            for text, score in joined.items()
            for cut in range(1, len(text))
            if text[:cut] in joined and text[cut:] in joined
        ]
        merges.sort(key=lambda merge: merge[0])
        unknown = next((text for text, kind in zip(self._tokens, self._types, strict=True) if kind == _UNKNOWN), None)
        pairs = [(left, right) for _, left, right in merges]
        library = Tokenizer(BPE(vocab=vocabulary, merges=pairs, unk_token=unknown, fuse_unk=True, byte_fallback=True))
        spaces = Replace(" ", WORD_SPACE)
        library.normalizer = Sequence([Prepend(WORD_SPACE), spaces]) if self.drops_first_space else spaces
        return library

    def _cut(self, metadata: Metadata) -> _Cut:
        name = metadata.text("tokenizer.ggml.pre", "default")
        cut = _CUTS.get(name)
        if cut is None:
            known = ", ".join(sorted(_CUTS))
            raise ModelError(f"{self._where} cuts text by the rule {name!r}, which is unknown here; known are: {known}")
        return cut

    def _merge(self, line: str) -> tuple[str, str]:
        left, space, right = line.partition(" ")
        if not (left and space and right):
            raise ModelError(f"{self._where}: its merge {line[:60]!r} is not two parts with a space between")
        return left, right


def _pre_tokenizer(cut: _Cut) -> tokenizers.pre_tokenizers.PreTokenizer:
    from tokenizers import Regex
    from tokenizers.pre_tokenizers import ByteLevel, Digits, Sequence, Split

    steps: list[tokenizers.pre_tokenizers.PreTokenizer] = []
    if cut.single_digits:
        steps.append(Digits(individual_digits=True))
    if cut.pattern is not None:
        steps.append(Split(Regex(cut.pattern), "isolated"))
    steps.append(ByteLevel(add_prefix_space=False, use_regex=cut.pattern is None))
    return Sequence(steps)
