"""Counts must be the engine's: the same prompt from the same messages, the same tokens from the same prompt."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import jinja2
import pytest
from tokenizers import Tokenizer, models, pre_tokenizers, processors

from anex.byte_tokens import count_byte_text, count_byte_tokens
from anex.chat_templates import ChatTemplate, TemplateRefused
from anex.clock import FixedClock
from anex.errors import ModelFilesMissing
from anex.object_keys import model_prefix
from anex.s3 import ObjectHead
from anex.token_counters import TOKENIZERS_MAX, StoredTokenCounter, StoredTokenCounters
from anex.tokenizer_files import TOKENIZER_FILES
from config.catalog import load_catalog

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from anex.catalog import ModelSpec

ROOT = Path(__file__).parents[2]
CHAT = load_catalog(ROOT / "config/models.local.toml").get("smollm2-135m")
EMBED = load_catalog(ROOT / "config/models.local.toml").get("all-minilm-l6-v2")
BYTES = load_catalog(ROOT / "tests/support/models.test.toml", allow_fake_engine=True).get("fake-chat")

SPECIALS = {"bos_token": "<s>", "eos_token": "</s>"}
STRING_TEMPLATE = (
    "{{ bos_token }}{% for message in messages %}[{{ message['role'] }}]{{ message['content'] }}{{ eos_token }}"
    "{% endfor %}{% if add_generation_prompt %}[assistant]{% endif %}"
)
PARTS_TEMPLATE = (
    "{% for message in messages %}[{{ message.role }}]{% if message.content is string %}{{ message.content }}"
    "{% else %}{% for part in message.content %}<{{ part.text }}>{% endfor %}{% endif %}{% endfor %}"
)


class FolderStore:
    """An object store's reading side, over a dictionary; counts what was read."""

    def __init__(self) -> None:
        self.objects: dict[str, bytes] = {}
        self.reads: Counter[str] = Counter()

    def head(self, key: str) -> ObjectHead | None:
        data = self.objects.get(key)
        return None if data is None else ObjectHead(len(data), "etag")

    def read_range(self, key: str, start: int, end: int, etag: str | None = None) -> bytes:
        assert etag == "etag"
        self.reads[key] += 1
        return self.objects[key][start:end]

    def pull(self, spec: ModelSpec, **files: str) -> None:
        """Put files of a model into the bucket; ``tokenizer_json`` stands for ``tokenizer.json``."""
        for name, text in files.items():
            stem, _, ending = name.rpartition("_")
            self.objects[f"{model_prefix(spec.id, spec.revision)}{stem}.{ending}"] = text.encode()


@pytest.fixture
def store() -> FolderStore:
    return FolderStore()


@pytest.fixture
def counters(store: FolderStore, tmp_path: Path) -> StoredTokenCounters:
    return StoredTokenCounters(store, tmp_path / "tokenizers")  # type: ignore[arg-type] # its reading side


def word_tokenizer(words: str = "hello world [user] [assistant] [system]") -> Tokenizer:
    """Return a tokenizer of words by white space, unknown ones included, with markers around an embedded text."""
    vocabulary = {word: place for place, word in enumerate(["?", "<s>", "</s>", *words.split()])}
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token="?"))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    tokenizer.add_special_tokens(["<s>", "</s>"])
    tokenizer.post_processor = processors.TemplateProcessing(
        single="<s> $A </s>", special_tokens=[("<s>", 1), ("</s>", 2)]
    )
    return tokenizer


def pull_chat_model(store: FolderStore, spec: ModelSpec = CHAT) -> None:
    config = {"bos_token": "<s>", "eos_token": {"content": "</s>"}, "chat_template": "unused"}
    store.pull(
        spec,
        tokenizer_json=word_tokenizer().to_str(),
        tokenizer_config_json=json.dumps(config),
        chat_template_jinja=STRING_TEMPLATE.replace("]", "] "),
    )


def render(source: str, messages: Sequence[Mapping[str, Any]], /, **template_kwargs: Any) -> str:
    clock = FixedClock(datetime(2026, 12, 24, 18, 0, tzinfo=UTC))
    return ChatTemplate(source, SPECIALS, clock).render(messages, template_kwargs)


def user(content: Any) -> dict[str, Any]:
    return {"role": "user", "content": content}


def parts(*texts: str) -> list[dict[str, str]]:
    return [{"type": "text", "text": text} for text in texts]


# The prompt


def test_a_prompt_has_the_special_tokens_and_opens_the_assistants_turn() -> None:
    assert render(STRING_TEMPLATE, [user("hi")]) == "<s>[user]hi</s>[assistant]"


def test_parts_are_joined_by_a_line_feed_for_a_template_that_reads_strings() -> None:
    assert render(STRING_TEMPLATE, [user(parts("a", "b"))]) == "<s>[user]a\nb</s>[assistant]"


@pytest.mark.parametrize("content", ["a", parts("a")])
def test_a_template_that_loops_over_parts_gets_parts_always(content: Any) -> None:
    assert render(PARTS_TEMPLATE, [user(content)]) == "[user]<a>"


LOOP = "{% for item in CONTENT %}x{% endfor %}"
MACRO = "{% macro show(c) %}{% for item in c %}x{% endfor %}{% endmacro %}"


@pytest.mark.parametrize(
    ("source", "reads_parts"),
    [
        ("{% for m in messages %}" + LOOP.replace("CONTENT", "m.content") + "{% endfor %}", True),
        ("{% for m in messages %}" + LOOP.replace("CONTENT", "m['content']") + "{% endfor %}", True),
        ("{% for m in messages[1:] %}" + LOOP.replace("CONTENT", "m.content | list") + "{% endfor %}", True),
        (
            "{% set rest = messages[1:] %}{% set tail = rest %}{% for m in tail %}"
            + LOOP.replace("CONTENT", "m.content")
            + "{% endfor %}",
            True,
        ),
        (
            "{% for m in messages %}{% set content = m.content %}"
            + LOOP.replace("CONTENT", "content")
            + "{% endfor %}",
            True,
        ),
        (MACRO + "{% for m in messages %}{{ show(m.content) }}{% endfor %}", True),
        (MACRO + "{% for m in messages %}{{ show(c=m['content']) }}{% endfor %}", True),
        (MACRO + "{% for m in messages %}{{ show(m.role) }}{{ m.content }}{% endfor %}", False),
        ("{% for m in messages %}{{ m.content }}{% endfor %}", False),
        ("{% for m in messages %}" + LOOP.replace("CONTENT", "m.tool_calls") + "{% endfor %}", False),
        ("{% for t in tools or [] %}" + LOOP.replace("CONTENT", "t.content") + "{% endfor %}", False),
    ],
)
def test_whether_parts_are_read_is_told_by_the_templates_loops(source: str, reads_parts: bool) -> None:
    probe = "{{ messages[0].content is string }}"

    rendered = render(probe + source, [user("abc")])

    assert rendered.startswith("False" if reads_parts else "True")


def test_a_tools_answer_is_a_string_even_for_templates_that_read_parts() -> None:
    answer = {"role": "tool", "tool_call_id": "call_1", "content": parts("4", "2")}

    assert render(PARTS_TEMPLATE, [answer]) == "[tool]4\n2"


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [('{"a": "<é>"}', '{"a": "<é>"}'), ({"a": 1}, '{"a": 1}'), ("", "{}"), ("not JSON", "{}"), ("[1]", "{}")],
)
def test_arguments_of_a_tool_call_are_an_object_and_come_out_unescaped(arguments: Any, expected: str) -> None:
    template = (
        "{% for m in messages %}{{ m.content }}{{ m.tool_calls[0].function.arguments | tojson }}{% endfor %}"
    )
    call = {"id": "call_1", "type": "function", "function": {"name": "f", "arguments": arguments}}
    message = {"role": "assistant", "content": None, "tool_calls": [call]}

    assert render(template, [message]) == expected
    assert call["function"] == {"name": "f", "arguments": arguments}, "the caller's message was changed"


def test_developers_become_one_system_turn_where_a_template_knows_none() -> None:
    conversation = [user("a"), {"role": "developer", "content": "b"}, {"role": "system", "content": "c"}]

    assert render(STRING_TEMPLATE, conversation) == "<s>[system]b\n\nc</s>[user]a</s>[assistant]"


def test_developers_stay_where_a_template_knows_them() -> None:
    template = "{% for m in messages %}{{ 'D' if m.role == 'developer' else 'S' }}{% endfor %}"

    assert render(template, [{"role": "developer", "content": "b"}]) == "D"


def test_a_rows_variables_reach_the_template_and_cannot_replace_the_conversation() -> None:
    template = "{{ enable_thinking }}{{ messages | length }}{{ add_generation_prompt }}"

    rendered = render(template, [user("a")], enable_thinking=False, messages=[], add_generation_prompt=False)

    assert rendered == "False1True"


@pytest.mark.parametrize(
    ("template_kwargs", "expected"),
    [
        ({"reasoning_effort": "low"}, "True"),
        ({"reasoning_effort": "none"}, "False"),
        ({"reasoning_effort": "low", "enable_thinking": False}, "False"),
        ({}, ""),
    ],
)
def test_asking_for_an_effort_turns_thinking_on(template_kwargs: dict[str, Any], expected: str) -> None:
    assert render("{{ enable_thinking }}", [user("a")], **template_kwargs) == expected


def test_the_dialect_is_that_of_chat_templates() -> None:
    template = (
        "{% for n in [1, 2, 3] %}\n    {% if n == 2 %}\n        {% continue %}\n    {% endif %}\n{{ n }}\n{% endfor %}\n"
        "{% generation %}said{% endgeneration %}|{{ '<b>' | tojson }}|{{ strftime_now('%d %b %Y') }}"
    )

    assert render(template, [user("a")]) == '1\n3\nsaid|"<b>"|24 Dec 2026'


@pytest.mark.parametrize(
    "template",
    [
        "{{ raise_exception('roles must alternate') }}",
        "{{ messages[0].content + 1 }}",
        "{{ ''.__class__.__mro__ }}",
        "{{ messages.append(1) }}",
    ],
)
def test_what_a_template_refuses_or_may_not_do_is_one_error(template: str) -> None:
    with pytest.raises(TemplateRefused):
        render(template, [user("a")])


def test_a_template_that_is_none_is_told_when_it_is_read() -> None:
    with pytest.raises(jinja2.TemplateSyntaxError):
        render("{% if %}", [user("a")])


# The count


def test_a_chat_counts_the_tokens_of_its_prompt_and_no_marker_twice(
    counters: StoredTokenCounters, store: FolderStore
) -> None:
    pull_chat_model(store)

    # <s> [user] hello world </s> [assistant]
    assert counters.for_model(CHAT).count_chat([user("hello world")], {}) == 6


def test_a_chat_that_the_template_refuses_counts_nothing(
    counters: StoredTokenCounters, store: FolderStore
) -> None:
    pull_chat_model(store)
    store.pull(CHAT, chat_template_jinja="{{ raise_exception('no') }}")

    assert counters.for_model(CHAT).count_chat([user("hello")], {}) == 0


def test_embedded_texts_count_their_markers(counters: StoredTokenCounters, store: FolderStore) -> None:
    store.pull(EMBED, tokenizer_json=word_tokenizer().to_str())

    assert counters.for_model(EMBED).count_texts(["hello", "hello big world", ""]) == [3, 5, 2]


def test_a_length_that_the_file_asks_for_is_not_heeded(
    counters: StoredTokenCounters, store: FolderStore
) -> None:
    tokenizer = word_tokenizer()
    tokenizer.enable_truncation(4)
    tokenizer.enable_padding(length=4)
    store.pull(EMBED, tokenizer_json=tokenizer.to_str())

    assert counters.for_model(EMBED).count_texts(["hello", "hello " * 100]) == [3, 102]


def test_models_of_the_byte_rule_need_no_files(counters: StoredTokenCounters) -> None:
    conversation = [user(parts("hé", "y"))]

    counter = counters.for_model(BYTES)

    assert counter.count_chat(conversation, {}) == count_byte_tokens(conversation)
    assert counter.count_texts(["hé"]) == [count_byte_text("hé")]


# The files


def test_files_that_were_never_pulled_are_named_with_the_command_that_pulls_them(
    counters: StoredTokenCounters,
) -> None:
    with pytest.raises(ModelFilesMissing, match=r"anex models pull smollm2-135m"):
        counters.for_model(CHAT)


def test_a_pull_that_is_under_way_is_not_taken_for_the_whole(
    counters: StoredTokenCounters, store: FolderStore
) -> None:
    pull_chat_model(store)
    whole = dict(store.objects)
    del store.objects[f"{model_prefix(CHAT.id, CHAT.revision)}{TOKENIZER_FILES[-1]}"]
    with pytest.raises(ModelFilesMissing):
        counters.for_model(CHAT)

    store.objects = whole

    assert counters.for_model(CHAT).count_chat([user("hello")], {}) == 5


def test_a_chat_model_without_a_template_is_refused(
    counters: StoredTokenCounters, store: FolderStore
) -> None:
    store.pull(CHAT, tokenizer_json=word_tokenizer().to_str())

    with pytest.raises(ModelFilesMissing, match=r"chat_template\.jinja"):
        counters.for_model(CHAT)


@pytest.mark.parametrize(
    "template",
    [STRING_TEMPLATE, [{"name": "tool_use", "template": "x"}, {"name": "default", "template": "y"}]],
)
def test_a_template_may_stand_in_the_tokenizers_configuration(
    counters: StoredTokenCounters, store: FolderStore, template: Any
) -> None:
    config = json.dumps({"chat_template": template})
    store.pull(CHAT, tokenizer_json=word_tokenizer().to_str(), tokenizer_config_json=config)

    assert counters.for_model(CHAT).count_chat([user("hello")], {}) == 1


def test_files_are_copied_once_a_machine(store: FolderStore, tmp_path: Path) -> None:
    pull_chat_model(store)
    for _ in range(3):  # three processes
        counters = StoredTokenCounters(store, tmp_path)  # type: ignore[arg-type] # its reading side
        counters.for_model(CHAT)

    assert set(store.reads.values()) == {1}
    assert [each.name for each in (tmp_path / CHAT.id).iterdir()] == [CHAT.revision], (
        "something was left over"
    )


def test_another_revision_has_files_of_its_own(counters: StoredTokenCounters, store: FolderStore) -> None:
    pull_chat_model(store)
    later = replace(CHAT, weights=replace(CHAT.weights, revision="2"))
    store.pull(later, tokenizer_json=word_tokenizer().to_str(), chat_template_jinja="hello")

    assert counters.for_model(CHAT).count_chat([user("hello")], {}) == 5
    assert counters.for_model(later).count_chat([user("hello")], {}) == 1


def test_the_latest_two_tokenizers_stay_in_memory(counters: StoredTokenCounters, store: FolderStore) -> None:
    specs = [replace(CHAT, id=f"model-{number}") for number in range(TOKENIZERS_MAX + 1)]
    for spec in specs:
        pull_chat_model(store, spec)
    first, second, third = specs

    kept = counters.for_model(first)
    dropped = counters.for_model(second)
    assert counters.for_model(first) is kept
    counters.for_model(third)

    assert counters.for_model(first) is kept
    assert counters.for_model(second) is not dropped


def test_a_counter_without_a_template_counts_no_chats() -> None:
    with pytest.raises(TypeError):
        StoredTokenCounter(word_tokenizer(), None).count_chat([user("a")], {})
