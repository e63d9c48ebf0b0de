"""Caches: reused, trimmed, quantized, with a window, and kept in files."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import outlive.core as mx
from outlive.io.errors import UserError
from outlive.io.replace import replacing
from outlive.lm.cache import CacheOptions, KVCache, QuantizedKVCache, WindowKVCache
from outlive.lm.errors import PromptError
from outlive.lm.generation import GenerationStats
from outlive.lm.loading import load
from outlive.lm.model import LanguageModel
from outlive.lm.prompt_cache import PromptCache, identity_of
from outlive.lm.sampling import Sampler
from tests.lm.checkpoints import write_checkpoint
from tests.lm.test_llama import ids_of, relative_error

IDS = ids_of(40, seed=2)


@pytest.fixture(scope="module", params=["llama", "gemma3_text"])
def model(request, tmp_path_factory) -> LanguageModel:
    return load(write_checkpoint(tmp_path_factory.mktemp("model") / request.param, request.param))


def answer(model: LanguageModel, ids: list[int], count: int, cache: PromptCache | None = None) -> tuple[list[int], int]:
    """Tokens drawn with a fixed seed, and how many of the prompt's were in the cache already."""
    stats = GenerationStats()
    pieces = model.generate(ids, max_tokens=count, sampler=Sampler(1.0, 5), cache=cache, stats=stats)
    return [piece.token.id for piece in pieces if piece.token is not None], stats.reused_tokens


def test_a_conversation_goes_on_from_its_cache(model):
    cache = PromptCache(model.network)
    first, reused = answer(model, IDS[:5], 3, cache)
    assert reused == 0
    longer = [*IDS[:5], *first, *IDS[5:20]]
    again, reused = answer(model, longer, 12, cache)
    assert again == answer(model, longer, 12)[0]
    assert reused == 5 + len(first) - 1  # the last token was never fed


@pytest.mark.parametrize("shared", [0, 1, 7, 19, 20])
def test_another_prompt_reuses_what_it_begins_with(model, shared):
    """Also where a window has moved on, so that nothing can be reused."""
    cache = PromptCache(model.network)
    answer(model, IDS[:20], 4, cache)
    other = [*IDS[:shared], *IDS[30:40]]
    again, reused = answer(model, other, 12, cache)
    assert again == answer(model, other, 12)[0]
    assert reused in (0, shared)


def test_a_reader_that_stops_early_leaves_a_cache_that_is_right(model):
    cache = PromptCache(model.network)
    pieces = model.generate(IDS[:6], max_tokens=9, sampler=Sampler(1.0, 5), cache=cache)
    next(pieces), next(pieces)
    pieces.close()
    assert answer(model, IDS[:9], 12, cache)[0] == answer(model, IDS[:9], 12)[0]


@pytest.mark.parametrize("count", [3, 30])
def test_a_saved_cache_goes_on_as_the_one_in_memory(model, tmp_path, count):
    cache = PromptCache(model.network)
    drawn, _ = answer(model, IDS[:5], count, cache)
    identity = identity_of(model.name, model.network)
    cache.save(tmp_path / "c", identity)
    read = PromptCache.load(tmp_path / "c", model.network, identity, CacheOptions())
    assert read.tokens == cache.tokens
    longer = [*IDS[:5], *drawn, *IDS[5:20]]
    assert answer(model, longer, 12, read)[0] == answer(model, longer, 12)[0]
    assert os.listdir(tmp_path) == ["c"]


def test_a_cache_of_another_model_or_with_other_options_is_refused(model, tmp_path):
    cache = PromptCache(model.network)
    answer(model, IDS[:5], 2, cache)
    cache.save(tmp_path / "c", "one")
    with pytest.raises(UserError, match="was written by another model"):
        PromptCache.load(tmp_path / "c", model.network, "two", CacheOptions())
    with pytest.raises(UserError, match="with other options"):
        PromptCache.load(tmp_path / "c", model.network, "one", CacheOptions(window=8))
    content = (tmp_path / "c").read_bytes()
    (tmp_path / "c").write_bytes(content[: len(content) // 2])
    with pytest.raises(UserError, match="truncated"):
        PromptCache.load(tmp_path / "c", model.network, "one", CacheOptions())
    with pytest.raises(UserError, match="cannot open"):
        PromptCache.load(tmp_path / "none", model.network, "one", CacheOptions())


@pytest.mark.parametrize(("bits", "error"), [(8, 0.01), (4, 0.15)])
def test_a_quantized_cache_stays_close(tmp_path, bits, error):
    network = load(write_checkpoint(tmp_path / "m", "qwen3")).network
    rows = {}
    for options in (CacheOptions(), CacheOptions(bits=bits)):
        cache = network.make_cache(options)
        pieces = [network.hidden(mx.array([IDS[a:b]], mx.uint32), cache) for a, b in [(0, 25), (25, 26), (26, 40)]]
        rows[options] = np.concatenate([np.array(network.logits(piece)[0]) for piece in pieces])
    exact, quantized = rows.values()
    assert 0 < relative_error(quantized, exact) < error
    held = sum(array.nbytes for entry in cache for array in entry.arrays)
    whole = sum(array.nbytes for entry in _filled(network) for array in entry.arrays)
    assert held < whole * (bits + 2) / 32


def _filled(network) -> list[KVCache]:
    cache = network.make_cache()
    mx.eval(network.hidden(mx.array([IDS], mx.uint32), cache))
    return cache


def test_compiled_steps_on_a_quantized_cache_draw_what_eager_ones_would(tmp_path):
    model = load(write_checkpoint(tmp_path / "m", "qwen3"))
    options = CacheOptions(bits=8)
    tokens, _ = answer(model, IDS[:20], 10, PromptCache(model.network, options))
    cache, eager, key = model.network.make_cache(options), [], Sampler(1.0, 5)
    state = key.start()
    logits = model.network.logits(model.network.hidden(mx.array([IDS[:20]], mx.uint32), cache))[:, -1]
    for _ in range(10):
        token, state = key.draw(logits, state)
        eager.append(int(token.item()))
        logits = model.network.logits(model.network.hidden(token[None], cache))[:, -1]
    assert tokens == eager[: len(tokens)]


def test_heads_that_do_not_divide_into_groups_keep_their_cache(tmp_path):
    network = load(write_checkpoint(tmp_path / "m", config={"head_dim": 16}, tensors=_heads_of_16())).network
    with pytest.raises(PromptError, match="heads of 16 elements"):
        network.make_cache(CacheOptions(bits=8))


def _heads_of_16() -> dict[str, np.ndarray]:
    shapes = {"q": (64, 128), "k": (32, 128), "v": (32, 128), "o": (128, 64)}
    names = {
        f"model.layers.{layer}.self_attn.{which}_proj.weight": shape
        for layer in (0, 1)
        for which, shape in shapes.items()
    }
    return {name: np.zeros(shape, np.float32) for name, shape in names.items()}


@pytest.mark.parametrize("pieces", [[30], [1] * 30, [3, 1, 9, 1, 1, 15], [8, 8, 8, 6]])
@pytest.mark.parametrize("window", [1, 7, 8, 64])
def test_a_window_holds_the_last_tokens_in_their_order(window, pieces):
    cache, begin = WindowKVCache(window), 0
    for count in pieces:
        numbers = mx.arange(begin, begin + count).astype(mx.float32).reshape(1, 1, count, 1)
        keys, values = cache.update(numbers, -numbers)
        begin += count
        seen = np.array(keys)[0, 0, :, 0].tolist()
        assert seen == list(range(begin - len(seen), begin))
        assert len(seen) == min(begin, count + window - 1)
        np.testing.assert_array_equal(np.array(values), -np.array(keys))
        mask = cache.mask(count)
        if count > 1:
            places = np.arange(begin - count, begin)[:, None] - np.array(seen)[None]
            np.testing.assert_array_equal(np.array(mask), (places >= 0) & (places < window))
    held = [np.array(array)[0, 0, :, 0].tolist() for array in cache.state()]
    last = list(range(max(0, begin - window), begin))
    assert held == [last, [-number for number in last]]


def test_only_what_is_there_can_be_forgotten():
    cache, window = KVCache(), WindowKVCache(4)
    new = mx.zeros((1, 1, 6, 2))
    cache.update(new, new), window.update(new, new)
    cache.trim(6)
    assert cache.offset == 0
    with pytest.raises(ValueError, match="cannot forget 1"):
        cache.trim(1)
    with pytest.raises(ValueError, match="window of 4 tokens that has moved to 6"):
        window.trim(1)


def test_a_process_that_ends_while_saving_leaves_the_old_file(tmp_path):
    target = tmp_path / "c"
    target.write_bytes(b"old")
    program = (
        "import os, signal, sys; from pathlib import Path; from outlive.io.replace import replacing\n"
        "with replacing(Path(sys.argv[1])) as file:\n"
        "    file.write(b'new' * 1000); file.flush(); os.kill(os.getpid(), signal.SIGTERM)"
    )
    done = subprocess.run([sys.executable, "-c", program, str(target)], check=False)
    assert done.returncode == -signal.SIGTERM
    assert target.read_bytes() == b"old"


def test_an_error_while_saving_leaves_the_old_file_and_nothing_else(tmp_path):
    target = tmp_path / "c"
    target.write_bytes(b"old")
    with pytest.raises(UserError, match="no space left on device"):
        _write_on_a_full_disk(target)
    assert (target.read_bytes(), os.listdir(tmp_path)) == (b"old", ["c"])
    with pytest.raises(UserError, match="cannot write"), replacing(Path("/proc/nowhere/c")):
        pass


def _write_on_a_full_disk(target: Path) -> None:
    with replacing(target) as file:
        file.write(b"new")
        raise OSError(28, "No space left on device")


def test_a_quantized_cache_grows_like_the_other():
    cache = QuantizedKVCache(8, 64)
    for count in (1, 255, 1, 300):
        new = mx.random.normal((1, 2, count, 64))
        keys, _ = cache.update(new, new)
        assert keys.shape == (1, 2, cache.offset, 64)
        np.testing.assert_allclose(np.array(keys[:, :, -count:]), np.array(new), atol=0.05)
