"""Chat templates, rendered as the engine renders them: what is counted here is what the engine reads.

A template is a Jinja text that ships with the model. Its dialect is the one of transformers
(https://huggingface.co/docs/transformers/chat_templating_writing): blocks trimmed, ``break`` and ``continue``,
``raise_exception``, ``strftime_now``, a ``tojson`` that leaves HTML alone, and ``generation`` blocks, which mark
the assistant's words and print them. It runs in Jinja's sandbox: a template is data that came with weights.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from jinja2 import TemplateError, nodes
from jinja2.ext import Extension, loopcontrols
from jinja2.sandbox import ImmutableSandboxedEnvironment

from anex.chat_content import merge_developer_turns, shape_message
from anex.chat_parts import reads_parts

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from jinja2.parser import Parser

    from anex.clock import Clock


class TemplateRefused(Exception):
    """The template cannot render this conversation; the engine answers such a request with 400."""


class _GenerationBlock(Extension):
    """``{% generation %}…{% endgeneration %}`` prints its body."""

    tags = {"generation"}  # noqa: RUF012 # as the base class declares it

    def parse(self, parser: Parser) -> nodes.Scope:
        line = next(parser.stream).lineno
        body = parser.parse_statements(("name:endgeneration",), drop_needle=True)
        return nodes.Scope(body, lineno=line)


class ChatTemplate:
    """One model's compiled template. Rendering is thread-safe and does not change the messages."""

    def __init__(self, source: str, special_tokens: Mapping[str, str], clock: Clock) -> None:
        """Compile ``source``; ``special_tokens`` are the names it may use, such as ``bos_token``.

        ``clock`` gives templates that write the date today's, in UTC.

        Raises ``jinja2.TemplateSyntaxError``.
        """
        environment = _make_environment(clock)
        self._template = environment.from_string(source)
        self._special_tokens = dict(special_tokens)
        self._takes_parts = reads_parts(environment.parse(source))
        self._knows_developers = "'developer'" in source or '"developer"' in source

    def render(
        self,
        messages: Sequence[Mapping[str, Any]],
        template_kwargs: Mapping[str, Any],
        *,
        opens_answer: bool = True,
    ) -> str:
        """Return the prompt of a conversation, by default with the opening of the assistant's turn.

        ``template_kwargs`` are a row's own variables; they win over the special tokens, as in transformers.
        Raises ``TemplateRefused``.
        """
        conversation = [shape_message(message, as_parts=self._takes_parts) for message in messages]
        if not self._knows_developers:
            conversation = merge_developer_turns(conversation)
        variables = {
            "tools": None,
            "documents": None,
            **self._special_tokens,
            **_add_thinking(template_kwargs),
            "messages": conversation,
            "add_generation_prompt": opens_answer,
        }
        try:
            return self._template.render(variables)
        except Exception as error:  # a template is a program: anything can come out of it
            raise TemplateRefused(str(error)) from error


def _add_thinking(template_kwargs: Mapping[str, Any]) -> dict[str, Any]:
    """Turn thinking on where an effort is asked for, as vLLM does (``build_chat_params``, 0.32)."""
    effort = template_kwargs.get("reasoning_effort")
    implied = {} if effort is None else {"enable_thinking": effort != "none"}
    return {**implied, **template_kwargs}


def _make_environment(clock: Clock) -> ImmutableSandboxedEnvironment:
    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True,
        lstrip_blocks=True,
        extensions=[_GenerationBlock, loopcontrols],
        autoescape=False,  # a prompt is no HTML
    )
    environment.filters["tojson"] = _to_json
    environment.globals["raise_exception"] = _raise_exception
    environment.globals["strftime_now"] = lambda pattern: clock.now().strftime(pattern)
    return environment


def _to_json(
    value: Any,
    ensure_ascii: bool = False,
    indent: int | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    return json.dumps(
        value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys
    )


def _raise_exception(message: str) -> None:
    raise TemplateError(message)
