"""Chat templates: programs in Jinja that come with a model, run in a sandbox with bounded results."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

import jinja2
from jinja2.ext import loopcontrols
from jinja2.sandbox import ImmutableSandboxedEnvironment, SecurityError

from outlive.lm.errors import ModelError, PromptError

Message = Mapping[str, Any]

TEXT_LENGTH_MAX = 1 << 24  # characters that a template may write, and that one of its operations may make


class _TemplateRaised(jinja2.TemplateError):
    """The template itself called ``raise_exception``."""


class _Sandbox(ImmutableSandboxedEnvironment):
    """No access to Python's internals, no changes to what is passed in, no operation with a huge result."""

    intercepted_binops = frozenset({"*", "**"})

    def call_binop(self, context: Any, operator: str, left: Any, right: Any) -> Any:
        if operator == "**" and not (isinstance(left, int | float) and isinstance(right, int | float)):
            raise SecurityError("a power of something that is no number")
        if operator == "**" and (abs(left) > 1e6 or abs(right) > 64):
            raise SecurityError("a power too large to be meant")
        if operator == "*":
            for sized, times in ((left, right), (right, left)):
                if hasattr(sized, "__len__") and isinstance(times, int) and len(sized) * times > TEXT_LENGTH_MAX:
                    raise SecurityError(f"a repetition longer than {TEXT_LENGTH_MAX}")
        return super().call_binop(context, operator, left, right)


class ChatTemplate:
    """A model's own way of writing a conversation as text.

    Raises:
        ModelError: if the template's text is no valid Jinja.
    """

    def __init__(self, source: str, where: str, special_tokens: Mapping[str, str]) -> None:
        self.source = source
        self._where = where
        self._special_tokens = dict(special_tokens)
        environment = _Sandbox(trim_blocks=True, lstrip_blocks=True, extensions=[loopcontrols])
        environment.globals |= {"raise_exception": _raise_exception, "strftime_now": _strftime_now}
        environment.filters["tojson"] = _to_json
        try:
            self._template = environment.from_string(source)
        except (jinja2.TemplateError, RecursionError) as error:
            raise ModelError(f"{where}: its chat template does not compile ({error}); use another file") from error

    def render(
        self, messages: Sequence[Message], *, tools: Sequence[Message] | None = None, add_generation_prompt: bool = True
    ) -> str:
        """The text of ``messages`` (each with ``role`` and ``content``), ending where the answer begins; ``tools``
        describes functions that the model may call, as JSON schemas.

        Raises:
            PromptError: if the template refuses the messages.
            ModelError: if it reaches outside its sandbox or fails.
        """
        context: dict[str, Any] = {"messages": messages, "tools": tools, "add_generation_prompt": add_generation_prompt}
        context |= self._special_tokens
        pieces, length = [], 0
        try:
            for piece in self._template.generate(context):
                length += len(piece)
                if length > TEXT_LENGTH_MAX:
                    raise SecurityError(f"a text longer than {TEXT_LENGTH_MAX} characters")
                pieces.append(piece)
        except _TemplateRaised as error:
            raise PromptError(f"{self._where}: its chat template refuses these messages ({error})") from error
        except SecurityError as error:
            raise ModelError(
                f"{self._where}: its chat template reaches outside its sandbox ({error}) and was stopped; "
                "do not use this file unless you trust where it comes from"
            ) from error
        except Exception as error:  # a template is a program from outside: it can raise anything
            reason = f"{type(error).__name__}: {error}"
            raise ModelError(f"{self._where}: its chat template fails ({reason}); use another file") from error
        return "".join(pieces)


def _raise_exception(text: str) -> None:
    raise _TemplateRaised(text)


def _strftime_now(form: str) -> str:
    return datetime.now().strftime(form)


def _to_json(value: Any, indent: int | None = None) -> str:
    # Jinja's own filter escapes for HTML, which a model was not trained on.
    return json.dumps(value, ensure_ascii=False, indent=indent)
