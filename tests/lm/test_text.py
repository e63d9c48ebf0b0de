"""Tokenizer and streaming detokenizer."""

from __future__ import annotations

import itertools

import gguf
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from outlive.io.gguf import GGUFFile
from outlive.lm.detokenizer import Detokenizer
from outlive.lm.errors import ModelError
from outlive.lm.gguf_tokenizer import GGUFTokenizer
from outlive.lm.metadata import Metadata
from tests.lm.tiny import CONTROL, MERGES, TOKENS, TinyLlama


def tiny_metadata(**changes) -> Metadata:
    types = [3] * len(CONTROL) + [1] * (len(TOKENS) - len(CONTROL))
    values = TinyLlama().default_metadata() | {"tokenizer.ggml.token_type": np.array(types, np.int32)} | changes
    return Metadata({key: value for key, value in values.items() if value is not None}, "m.gguf")


TINY = GGUFTokenizer(tiny_metadata())


def decode(tokenizer: GGUFTokenizer, ids: list[int]) -> str:
    detokenizer = Detokenizer(tokenizer)
    return "".join([*map(detokenizer.add, ids), detokenizer.finish()])


@given(st.text())
def test_text_survives_the_round_trip(text):
    assert decode(TINY, TINY.encode(text)) == text


def test_merges_apply_in_their_order():
    assert [TOKENS[i] for i in TINY.encode("hello wll")] == ["hello", "Ġw", "ll"]


def test_control_tokens_are_whole_in_text_and_silent_in_output():
    ids = TINY.encode("<|im_start|>hello<|im_end|>")
    assert ids == [1, TOKENS.index("hello"), 2]
    assert decode(TINY, ids) == "hello"


def test_user_defined_tokens_are_whole_and_shown():
    types = np.array([4] + [3] * 2 + [1] * (len(TOKENS) - 3), np.int32)
    tokenizer = GGUFTokenizer(tiny_metadata(**{"tokenizer.ggml.token_type": types}))
    assert tokenizer.encode("<|endoftext|>") == [0]
    assert decode(tokenizer, [0]) == "<|endoftext|>"


@pytest.mark.parametrize(
    ("wanted", "text", "first"), [(True, "hello", [1]), (False, "hello", []), (True, "<|im_start|>", [1])]
)
def test_the_beginning_token_comes_once_where_the_vocabulary_asks(wanted, text, first):
    tokenizer = GGUFTokenizer(tiny_metadata(**{"tokenizer.ggml.add_bos_token": wanted}))
    ids = tokenizer.encode(text)
    assert ids[: len(first)] == first
    assert ids.count(1) == len(first)
    assert tokenizer.encode("hello", begin=False) == TINY.encode("hello")


def test_ends_are_what_metadata_states_and_what_is_named_so():
    assert TINY.ends == {0, 2}  # <|endoftext|> by its name, <|im_end|> as the stated end


@given(st.lists(st.integers(0, len(TOKENS) + 3)))
def test_pieces_are_the_decoding_of_all_bytes(ids):
    """Any ids, also ones that make no UTF-8: streaming changes nothing."""
    together = b"".join(map(TINY.token_bytes, ids)).decode("utf-8", "replace")
    assert decode(TINY, ids) == together


def test_unfinished_characters_are_held_back():
    detokenizer = Detokenizer(TINY)
    pieces = [detokenizer.add(token) for token in TINY.encode("a🙂é")]
    assert pieces == ["a", "", "", "", "🙂", "", "é"]
    assert detokenizer.finish() == ""


def test_a_character_cut_short_is_shown_as_such_at_the_end():
    detokenizer = Detokenizer(TINY)
    assert [detokenizer.add(token) for token in TINY.encode("🙂")[:2]] == ["", ""]
    assert detokenizer.finish() == "\ufffd"


@pytest.fixture(scope="module")
def smollm2_tokenizer(smollm2_path) -> GGUFTokenizer:
    with GGUFFile(smollm2_path) as file:
        return GGUFTokenizer(Metadata(file.metadata, str(smollm2_path)))


@pytest.fixture(scope="module")
def smollm2_bytes(smollm2_tokenizer) -> set[int]:
    """The bytes that are tokens: some control characters and beginnings of unassigned characters are not."""
    tokens = map(smollm2_tokenizer.token_bytes, range(smollm2_tokenizer.size))
    return {token[0] for token in tokens if len(token) == 1}


@given(text=st.text())
def test_smollm2_text_survives_the_round_trip(smollm2_tokenizer, smollm2_bytes, text):
    expected = bytes(byte for byte in text.encode() if byte in smollm2_bytes)
    assert decode(smollm2_tokenizer, smollm2_tokenizer.encode(text)) == expected.decode("utf-8", "replace")


def test_smollm2_cuts_text_as_its_authors_do(smollm2_tokenizer):
    """Every digit alone, contractions and spaces before words, from the vocabulary's published rules."""
    ids = smollm2_tokenizer.encode("It's 2026, isn't it?\n  Yes")
    pieces = [smollm2_tokenizer.token_bytes(token).decode() for token in ids]
    assert pieces == ["It", "'s", " ", "2", "0", "2", "6", ",", " isn", "'t", " it", "?", "\n ", " Yes"]


BROKEN = {
    "kind": ({"tokenizer.ggml.model": "bert"}, "tokenizer of the kind 'bert'"),
    "rule": ({"tokenizer.ggml.pre": "mystery"}, "by the rule 'mystery'.*known are: default"),
    "token twice": ({"tokenizer.ggml.tokens": [*TOKENS[:-1], TOKENS[0]]}, "1 tokens twice"),
    "merge of one part": ({"tokenizer.ggml.merges": [*MERGES, "x"]}, "merge 'x' is not two parts"),
    "merge outside": ({"tokenizer.ggml.merges": [*MERGES, "h z"]}, "merges do not fit its vocabulary"),
    "no merges": ({"tokenizer.ggml.merges": None}, "no metadata 'tokenizer.ggml.merges'"),
    "types too few": ({"tokenizer.ggml.tokens": TOKENS[:-1]}, "not a list of 263 integers"),
    "flag": ({"tokenizer.ggml.add_bos_token": 1}, "'tokenizer.ggml.add_bos_token' is 1, not true or false"),
    "end outside": ({"tokenizer.ggml.eot_token_id": 264}, "not an index below 264"),
}


@pytest.mark.parametrize(("changes", "complaint"), BROKEN.values(), ids=BROKEN.keys())
def test_a_vocabulary_that_contradicts_itself_is_refused(changes, complaint):
    with pytest.raises(ModelError, match=complaint):
        GGUFTokenizer(tiny_metadata(**changes))


@pytest.mark.parametrize("rule", ["llama-bpe", "qwen2", "gpt-2", "default", "starcoder"])
@given(text=st.text())
def test_every_rule_keeps_the_text(rule, text):
    tokenizer = GGUFTokenizer(tiny_metadata(**{"tokenizer.ggml.pre": rule}))
    assert decode(tokenizer, tokenizer.encode(text)) == text


def test_the_keys_are_the_librarys():
    assert gguf.Keys.Tokenizer.PRE == "tokenizer.ggml.pre"
    assert gguf.Keys.Tokenizer.EOT_ID == "tokenizer.ggml.eot_token_id"


PIECES = ["<unk>", "<s>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256)), *"\u2581abch",
          "ab", "bc", "abc", "\u2581a", "\u2581\u2581", "ca", "\u2581ab", "abca"]  # fmt: skip
PIECE_SCORES = np.array([0.0] * 259 + [-9.0, -6.0, -7.0, -8.0, -10.0, -1.5, -1.0, -4.0, -2.0, -5.0, -2.5, -3.0, -3.5])
PIECE_TYPES = [2, 3, 3] + [6] * 256 + [1] * (len(PIECES) - 259)


def pieces_tokenizer(**changes) -> GGUFTokenizer:
    values = {
        "tokenizer.ggml.model": "llama",
        "tokenizer.ggml.tokens": PIECES,
        "tokenizer.ggml.scores": PIECE_SCORES,
        "tokenizer.ggml.token_type": np.array(PIECE_TYPES, np.int32),
        "tokenizer.ggml.bos_token_id": 1,
        "tokenizer.ggml.eos_token_id": 2,
    }
    return GGUFTokenizer(Metadata(values | changes, "m.gguf"))


def joined_by_score(text: str) -> list[str]:
    """SentencePiece's rule, step by step: join the neighbours whose union has the highest score, the first of equals."""
    score = {piece: PIECE_SCORES[i] for i, piece in enumerate(PIECES) if PIECE_TYPES[i] == 1}
    symbols = list(text)
    while True:
        unions = [(-score[a + b], i) for i, (a, b) in enumerate(itertools.pairwise(symbols)) if a + b in score]
        if not unions:
            break
        at = min(unions)[1]
        symbols[at : at + 2] = [symbols[at] + symbols[at + 1]]
    return [
        piece
        for symbol in symbols
        for piece in ([symbol] if symbol in score else [f"<0x{b:02X}>" for b in symbol.encode()])
    ]


@given(st.text("abc h\u00e9", max_size=25))
def test_pieces_join_as_sentencepiece_joins_them(text):
    tokenizer = pieces_tokenizer()
    expected = joined_by_score("\u2581" + text.replace(" ", "\u2581")) if text else []
    ids = tokenizer.encode(text)
    assert [PIECES[token] for token in ids] == ["<s>", *expected]


@given(st.text())
def test_text_survives_the_round_trip_through_pieces(text):
    tokenizer = pieces_tokenizer(**{"tokenizer.ggml.add_space_prefix": False})
    assert not tokenizer.drops_first_space
    kept = text.replace("\u2581", " ")  # the sign for a space is a space
    assert decode(tokenizer, tokenizer.encode(text)) == kept


def test_the_space_before_the_first_word_is_not_shown():
    tokenizer = pieces_tokenizer()
    assert decode(tokenizer, tokenizer.encode("ab ca")) == "ab ca"


def test_scores_that_are_missing_or_no_numbers_are_refused():
    with pytest.raises(ModelError, match=r"no metadata 'tokenizer\.ggml\.scores'"):
        pieces_tokenizer(**{"tokenizer.ggml.scores": None})
    with pytest.raises(ModelError, match="finite numbers"):
        pieces_tokenizer(**{"tokenizer.ggml.scores": PIECE_SCORES * np.nan})
