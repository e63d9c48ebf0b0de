"""A language model and a foreign library on one stream: the text is the model's own in every fresh process."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from outlive.lm import DEFAULT_SOURCE, load
from tests.budget import is_nightly

PROCESSES = 20 if is_nightly() else 5
PROGRAM = Path(__file__).with_name("model_beside_completions.py")
ROOT = PROGRAM.parents[2]


def test_fresh_processes_give_the_models_text_beside_completions_on_its_stream():
    alone = "".join(load(DEFAULT_SOURCE).stream("Why is the sky blue?", max_tokens=48))
    for _ in range(PROCESSES):
        done = subprocess.run(
            [sys.executable, str(PROGRAM), DEFAULT_SOURCE], capture_output=True, text=True, timeout=120, cwd=ROOT
        )
        assert (done.returncode, done.stderr) == (0, "")
        seen = json.loads(done.stdout)
        assert seen["text"] == alone
        assert seen["wrong"] == 0
        assert seen["completed"] >= 3, "the library hardly ran beside the model"
