"""Which shape of message content does a chat template read: a string, or a list of parts?

Read off the template's syntax tree with vLLM's rule, so that both render the same text: a template
reads parts when it loops over the content of a message.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from jinja2 import nodes


@dataclass(frozen=True, slots=True)
class Template:
    """A chat template and what it can take."""

    text: str
    as_parts: bool
    knows_developer: bool


def read_template(text: str) -> Template:
    """Return what *text* can take; one that cannot be parsed is taken to read strings."""
    return Template(
        text=text,
        as_parts=reads_parts(text),
        knows_developer='"developer"' in text or "'developer'" in text,
    )


def template_fault(text: str) -> str | None:
    """Return line and reason why *text* cannot be parsed, as ``3: reason``; None when it can."""
    import jinja2

    try:
        _parsed(text)
    except jinja2.TemplateSyntaxError as error:
        return f"{error.lineno}: {error.message}"
    return None


def reads_parts(text: str) -> bool:
    """Return whether the template loops over the content of a message."""
    import jinja2

    try:
        tree = _parsed(text)
    except jinja2.TemplateSyntaxError:
        return False
    messages = _message_names(tree)
    in_macro: dict[int, set[str]] = {}
    for macro in tree.find_all(jinja2.nodes.Macro):
        names = set(_content_parameters(tree, macro, messages))
        in_macro |= {id(loop): names for loop in macro.find_all(jinja2.nodes.For)}
    return any(
        _is_content(loop.iter, messages)
        or (
            isinstance(loop.iter, jinja2.nodes.Name)
            and loop.iter.name in in_macro.get(id(loop), {"content"})
        )
        for loop in tree.find_all(jinja2.nodes.For)
    )


def _parsed(text: str) -> "nodes.Template":
    import jinja2.ext
    import jinja2.sandbox

    class Generation(jinja2.ext.Extension):
        """`{% generation %}`, which marks the assistant's own text and changes nothing in it."""

        tags = {"generation"}  # noqa: RUF012 - jinja2 declares it so

        def parse(self, parser: "jinja2.parser.Parser") -> list["nodes.Node"]:
            next(parser.stream)
            return parser.parse_statements(("name:endgeneration",), drop_needle=True)

    environment = jinja2.sandbox.ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[Generation, jinja2.ext.loopcontrols]
    )
    return environment.parse(text)


def _message_names(tree: "nodes.Template") -> set[str]:
    """Return the loop variables that hold one message, through renamed lists and slices."""
    from jinja2 import nodes

    lists = {"messages"}
    size = 0
    while len(lists) > size:
        size = len(lists)
        lists |= {
            node.target.name
            for node in tree.find_all(nodes.Assign)
            if isinstance(node.target, nodes.Name) and _is_name(_source(node.node), lists)
        }
    return {
        loop.target.name
        for loop in tree.find_all(nodes.For)
        if isinstance(loop.target, nodes.Name) and _is_name(_source(loop.iter), lists)
    }


def _content_parameters(
    tree: "nodes.Template", macro: "nodes.Macro", messages: set[str]
) -> Iterator[str]:
    """Yield the parameters of *macro* that some call binds to a message's content."""
    from jinja2 import nodes

    names = [argument.name for argument in macro.args]
    for call in tree.find_all(nodes.Call):
        if not _is_name(call.node, {macro.name}):
            continue
        bound = list(zip(names, call.args, strict=False))
        bound += [(keyword.key, keyword.value) for keyword in call.kwargs]
        yield from (name for name, value in bound if _is_content(value, messages))


def _is_content(node: "nodes.Node", messages: set[str]) -> bool:
    from jinja2 import nodes

    node = _source(node)
    match node:
        case nodes.Getattr(attr="content"):
            return _is_name(node.node, messages)
        case nodes.Getitem(arg=nodes.Const(value="content")):
            return _is_name(node.node, messages)
        case _:
            return False


def _source(node: "nodes.Node") -> "nodes.Node":
    """Return what filters, tests and slices are applied to."""
    from jinja2 import nodes

    while True:
        match node:
            case nodes.Filter(node=inner) if inner is not None:
                node = inner
            case nodes.Test(node=inner) | nodes.Getitem(node=inner, arg=nodes.Slice()):
                node = inner
            case _:
                return node


def _is_name(node: "nodes.Node", names: set[str]) -> bool:
    from jinja2 import nodes

    return isinstance(node, nodes.Name) and node.name in names
