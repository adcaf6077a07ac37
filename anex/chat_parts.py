"""Whether a chat template reads a message's content as a list of parts or as one string.

The engine decides by the template's syntax tree and so do we, by the same rule
(``_detect_content_format`` in ``vllm/renderers/hf.py``, 0.32): a template that loops over a message's content
reads parts. The loop may stand in a macro that is called with the content.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from jinja2 import nodes

if TYPE_CHECKING:
    from collections.abc import Set as AbstractSet


def reads_parts(template: nodes.Template) -> bool:
    """Return whether a parsed template loops over the parts of a message's content."""
    message_names = _find_message_names(template)
    macros = list(template.find_all(nodes.Macro))
    if any(_loops_over_argument(template, macro, message_names) for macro in macros):
        return True
    in_macros = {id(loop) for macro in macros for loop in macro.find_all(nodes.For)}
    return any(
        _is_content(loop.iter, message_names)
        or (id(loop) not in in_macros and _is_name(loop.iter, {"content"}))
        for loop in template.find_all(nodes.For)
    )


def _find_message_names(template: nodes.Template) -> set[str]:
    """Return the names that stand for one message: targets of loops over ``messages`` or over a copy of it."""
    copies = {"messages"}
    grown = True
    while grown:
        found = {
            assign.target.name
            for assign in template.find_all(nodes.Assign)
            if isinstance(assign.target, nodes.Name) and _is_name(_strip(assign.node), copies)
        }
        grown = not found <= copies
        copies |= found
    return {
        loop.target.name
        for loop in template.find_all(nodes.For)
        if isinstance(loop.target, nodes.Name) and _is_name(_strip(loop.iter), copies)
    }


def _loops_over_argument(
    template: nodes.Template, macro: nodes.Macro, message_names: AbstractSet[str]
) -> bool:
    """Whether ``macro`` loops over a parameter that some call fills with a message's content."""
    parameters = [argument.name for argument in macro.args]
    filled: set[str] = set()
    for call in template.find_all(nodes.Call):
        if not _is_name(call.node, {macro.name}):
            continue
        placed = dict(zip(parameters, call.args, strict=False))
        named = {each.key: each.value for each in call.kwargs if each.key in parameters}
        filled |= {key for key, value in (placed | named).items() if _is_content(value, message_names)}
    return any(_is_name(loop.iter, filled) for loop in macro.find_all(nodes.For))


def _is_content(node: nodes.Node, message_names: AbstractSet[str]) -> bool:
    """Whether an expression is ``message.content`` or ``message['content']``, sliced or filtered at most."""
    node = _strip(node)
    if isinstance(node, nodes.Getattr):
        return node.attr == "content" and _is_name(node.node, message_names)
    if isinstance(node, nodes.Getitem) and isinstance(node.arg, nodes.Const):
        return node.arg.value == "content" and _is_name(node.node, message_names)
    return False


def _is_name(node: nodes.Node, names: AbstractSet[str]) -> bool:
    return isinstance(node, nodes.Name) and node.name in names


def _strip(node: nodes.Node) -> nodes.Node:
    """Return what filters, tests and slices are applied to."""
    while (operand := _operand(node)) is not None:
        node = operand
    return node


def _operand(node: nodes.Node) -> nodes.Node | None:
    if isinstance(node, nodes.Filter | nodes.Test):
        return node.node
    if isinstance(node, nodes.Getitem) and isinstance(node.arg, nodes.Slice):
        return node.node
    return None
