"""What stands around a request body: the forms that are understood, and those refused."""

import json

import pytest

from tests.request_lines import CHAT, COMPLETION, accepted, outer, rejected, without


@pytest.mark.parametrize(
    ("line", "reason", "value"),
    [
        (without("body"), "missing body", "{"),
        ('{"custom_id": "a"}', "missing body", "{"),
        ("{}", "missing body", "{"),
        ('{"url": "/v1/chat/completions", "messages": []}', "missing body", "{"),
        ('{"messages": [], "prompt": "x"}', "bad prompt", '"x"'),
        (outer(body=None), "bad body", "null"),
        (outer(body=[1]), "bad body", "[1]"),
        (outer(body=json.dumps(CHAT)), "bad body", '"{'),
        (outer(method="GET"), "bad method", '"GET"'),
        (outer(method=None), "bad method", "null"),
        (without("url"), "missing url", "{"),
        (outer(url=7), "unknown url", "7"),
        (outer(url="/v1/moderations"), "unknown url", '"/v1/moderations"'),
        (outer(url="/v1/responses/resp_1"), "unknown url", '"/v1/responses/resp_1"'),
        (outer(url="/v1/chat"), "unknown url", '"/v1/chat"'),
        (outer(url="/x/chat/completions"), "unknown url", '"/x/chat'),
        (outer(url="/v1/notchat/completions"), "unknown url", '"/v1/not'),
        (outer(url="/v2/chat/completions"), "unknown url", '"/v2'),
        (outer(custom_id=True), "bad custom_id", "true"),
        (outer(custom_id=["a"]), "bad custom_id", '["a"]'),
    ],
)
def test_a_wrong_envelope_is_rejected_at_the_offending_value(
    line: str, reason: str, value: str
) -> None:
    rejection = rejected(line)

    assert rejection.reason == reason
    assert line[rejection.column - 1 :].startswith(value)


@pytest.mark.parametrize(
    ("line", "vendor"),
    [
        ('{"custom_id": "a", "params": {"model": "m", "messages": []}}', "Anthropic"),
        ('{"key": "a", "request": {"contents": []}}', "Gemini"),
        ('{"contents": []}', "Gemini"),
        ('{"recordId": "a", "modelInput": {}}', "Bedrock"),
        (outer(url="/v4/chat/completions"), "Zhipu"),
        (outer(url="https://open.bigmodel.cn/api/paas/v4/chat/completions"), "Zhipu"),
        (outer(url="/v1/messages"), "Anthropic"),
        (outer(url="/v1beta/models/gemini:generateContent"), "Gemini"),
    ],
)
def test_another_vendors_form_is_refused_by_name(line: str, vendor: str) -> None:
    rejection = rejected(line)

    assert rejection.reason == "another vendor's form"
    assert vendor in rejection.message


def test_the_form_without_a_url_names_its_vendor() -> None:
    assert "Mistral" in rejected(json.dumps({"custom_id": "a", "body": CHAT})).message


@pytest.mark.parametrize(
    "url",
    [
        "/v1/chat/completions",
        "/chat/completions",
        "chat/completions",
        "v1/chat/completions",
        "/v1/chat/completions/",
        "https://api.openai.com/v1/chat/completions",
        "HTTP://localhost:8000/v1/chat/completions/",
        "https://gateway.example/openai/v1/chat/completions?api-version=1",
    ],
)
def test_every_way_to_write_the_endpoint_is_understood(url: str) -> None:
    assert accepted(outer(url=url)).endpoint == "/v1/chat/completions"
    line = json.dumps({"url": url.replace("chat/", ""), "body": COMPLETION})
    assert accepted(line).endpoint == "/v1/completions"


def test_the_method_may_be_missing_or_in_small_letters() -> None:
    assert accepted(without("method")).custom_id == "a"
    assert accepted(outer(method="post")).custom_id == "a"
