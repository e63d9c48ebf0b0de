"""Greedy text of the default model beside a raw completion loop on the same stream; a child of the tests.

usage: model_beside_completions.py MODEL_FILE

Prints one JSON object: the text, and how many foreign pieces of work were completed meanwhile and were wrong.
"""

from __future__ import annotations

import json
import queue
import sys
import threading

import numpy as np

import outlive.core as mx
from outlive import execution
from outlive.lm import load

PROMPT = "Why is the sky blue?"
TOKENS = 48


def complete(posted: queue.SimpleQueue) -> None:
    """The outside library: ends each piece of work that is posted, from its own thread."""
    while (item := posted.get()) is not None:
        source, target, ticket = item
        np.add(source, 1, out=target)
        ticket.complete()


def main() -> None:
    model = load(sys.argv[1])
    stream = mx.default_stream(mx.default_device())
    posted: queue.SimpleQueue = queue.SimpleQueue()
    library = threading.Thread(target=complete, args=(posted,))
    library.start()
    stop = threading.Event()
    counts = {"completed": 0, "wrong": 0}

    def share_the_stream() -> None:
        value = 0
        while not stop.is_set():
            a, out = mx.full((1000,), float(value)), mx.zeros((1000,))
            with execution.foreign(stream, [a], [out]) as work:
                posted.put((work.reads[0], work.writes[0], work.defer()))
            counts["wrong"] += out.min().item() != value + 1 or out.max().item() != value + 1
            counts["completed"] += 1
            value = (value + 1) % 1000

    other = threading.Thread(target=share_the_stream)
    other.start()
    text = "".join(model.stream(PROMPT, max_tokens=TOKENS))
    stop.set()
    other.join()
    posted.put(None)
    library.join()
    print(json.dumps({"text": text, **counts}))


if __name__ == "__main__":
    main()
