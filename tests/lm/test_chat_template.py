"""Chat templates: what they may do, and that nothing else succeeds."""

from __future__ import annotations

import pytest

from outlive.lm import chat_template
from outlive.lm.chat_template import ChatTemplate
from outlive.lm.errors import ModelError, PromptError
from tests.lm.tiny import TEMPLATE

MESSAGES = [{"role": "user", "content": "Hi"}]


def render(source: str, messages=MESSAGES, **options) -> str:
    return ChatTemplate(source, "m.gguf", {"bos_token": "<s>", "eos_token": "</s>"}).render(messages, **options)


def test_renders_a_conversation():
    assert render(TEMPLATE) == "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n"
    assert render(TEMPLATE, add_generation_prompt=False) == "<|im_start|>user\nHi<|im_end|>\n"


def test_has_the_names_that_templates_expect():
    assert (
        render("{{ bos_token }}|{{ eos_token }}|{{ messages[0] | tojson }}")
        == '<s>|</s>|{"role": "user", "content": "Hi"}'
    )
    assert render("{{ '<é>' | tojson }}") == '"<é>"'
    assert len(render("{{ strftime_now('%Y-%m-%d') }}")) == 10
    assert render("{% for i in range(9) %}{% if i == 2 %}{% break %}{% endif %}{{ i }}{% endfor %}") == "01"


def test_blocks_leave_no_blank_lines():
    assert render("{% if true %}\n  x\n  {% endif %}\ny") == "  x\ny"


def test_a_template_can_refuse_messages():
    with pytest.raises(PromptError, match=r"m.gguf.*refuses these messages \(roles must alternate\)"):
        render("{{ raise_exception('roles must alternate') }}")


ESCAPES = {
    "class": "{{ ''.__class__ }}{{ ''.__class__.__mro__ }}",
    "globals": "{{ raise_exception.__globals__['__builtins__'] }}",
    "subclasses": "{{ ().__class__.__base__.__subclasses__() }}",
    "format": "{{ '{0.__class__.__mro__}'.format(messages) }}",
    "changing messages": "{{ messages.append(1) }}",
    "changing a message": "{{ messages[0].update({'role': 'x'}) }}",
    "long range": "{% for i in range(100000000) %}{% endfor %}",
    "long text": "{{ 'x' * 1000000000000 }}",
    "long list": "{{ [0] * 1000000000000 }}",
    "long text from the right": "{{ 1000000000000 * 'x' }}",
    "power": "{{ 10 ** 100000000 }}",
    "power of power": "{{ 10000000 ** 60 }}",
    "power of text": "{{ 'a' ** 2 }}",
}


@pytest.mark.parametrize("source", ESCAPES.values(), ids=ESCAPES.keys())
def test_reaching_outside_the_sandbox_is_a_clear_error(source):
    messages = [{"role": "user", "content": "Hi"}]
    with pytest.raises(ModelError, match=r"^m.gguf: its chat template (reaches outside its sandbox|fails)") as caught:
        render(source, messages)
    assert "\n" not in str(caught.value)
    assert messages == MESSAGES


def test_internals_behind_the_attr_filter_are_not_there():
    assert render("{{ messages | attr('__class__') }}{{ raise_exception | attr('__globals__') }}") == ""


def test_text_without_end_is_stopped(monkeypatch):
    monkeypatch.setattr(chat_template, "TEXT_LENGTH_MAX", 10_000)
    with pytest.raises(ModelError, match="longer than 10000"):
        render("{% for i in range(100000) %}{{ i }} {% endfor %}")


@pytest.mark.parametrize("source", ["{% if %}", "{{ ", "{% include 'x' %}{% endif %}", "{% unknown %}"])
def test_a_template_that_is_no_jinja_is_refused(source):
    with pytest.raises(ModelError, match="does not compile"):
        ChatTemplate(source, "m.gguf", {})


@pytest.mark.parametrize(
    "source", ["{{ 1 / 0 }}", "{{ none.x.y }}", "{% include '/etc/passwd' %}", "{{ messages | nope }}"]
)
def test_a_template_that_fails_is_a_clear_error(source):
    with pytest.raises(ModelError, match=r"m.gguf: its chat template (fails|does not compile)"):
        render(source)
