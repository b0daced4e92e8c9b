"""Which templates read parts, told from their text alone."""

import pytest

from blend.core.rendering.template import read_template, reads_parts

LOOP = "{% for message in messages %}INNER{% endfor %}"


def template(inner: str) -> str:
    return LOOP.replace("INNER", inner)


@pytest.mark.parametrize(
    "text",
    [
        template("{% for part in message['content'] %}{% endfor %}"),
        template("{% for part in message.content | list %}{% endfor %}"),
        template("{% set content = message.content %}{% for p in content %}{% endfor %}"),
        "{% set rest = messages[1:] %}{% for m in rest %}"
        "{% for part in m.content[1:] %}{% endfor %}{% endfor %}",
        "{% macro show(c) %}{% for p in c %}{% endfor %}{% endmacro %}"
        + template("{{ show(message.content) }}"),
        "{% macro show(c) %}{% for p in c %}{% endfor %}{% endmacro %}"
        + template("{{ show(c=message['content']) }}"),
        template("{% generation %}{% for p in message.content %}{% endfor %}{% endgeneration %}"),
    ],
)
def test_a_template_that_loops_over_content_reads_parts(text: str) -> None:
    assert reads_parts(text)


@pytest.mark.parametrize(
    "text",
    [
        template("{{ message.content }}"),
        template("{% for call in message.tool_calls %}{% endfor %}"),
        "{% macro show(c) %}{% for p in c %}{% endfor %}{% endmacro %}"
        + template("{{ show(message.role) }}"),
        "{% macro show(content) %}{% for p in content %}{% endfor %}{% endmacro %}"
        + template("{{ message.content }}"),
        "{% for broken",
    ],
)
def test_any_other_template_reads_strings(text: str) -> None:
    assert not reads_parts(text)


def test_a_template_knows_the_developer_role_when_it_names_it() -> None:
    assert read_template(
        template("{% if message.role == 'developer' %}{% endif %}")
    ).knows_developer
    assert not read_template(template("{{ message.role }}")).knows_developer
