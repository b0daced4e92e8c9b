"""Result lines as OpenAI batch readers expect them."""

from typing import Any

import orjson
from hypothesis import given
from hypothesis import strategies as st

from blend.core.completion import Completion
from blend.core.input.draft import Rejection
from blend.core.results import rejected_line, result_line

BODIES = st.dictionaries(st.text(), st.text() | st.integers(0, 2**63) | st.none())


@given(st.text(), st.integers(0, 2**40), BODIES)
def test_a_line_is_one_json_object_with_the_body_inside(
    custom_id: str, row: int, body: dict[str, Any]
) -> None:
    line = result_line(custom_id, Completion(row, 200, orjson.dumps(body)))

    assert line.count(b"\n") == 1
    assert line.endswith(b"\n")
    record = orjson.loads(line)
    assert list(record) == ["id", "custom_id", "response", "error"]
    assert record["custom_id"] == custom_id
    assert record["error"] is None
    assert record["response"]["status_code"] == 200
    assert record["response"]["body"] == body
    assert record["id"].startswith("batch_req_")


def test_the_body_stands_byte_for_byte() -> None:
    body = rb'{ "id":"x" , "n": 123456789012345678901234567890, "t": "\u00e9\/" }'

    assert body in result_line("a", Completion(0, 200, body))


def test_a_body_over_several_lines_is_written_on_one() -> None:
    line = result_line("a", Completion(0, 200, b'{\r\n  "id": "x\\n"\n}\n'))

    assert line.count(b"\n") == 1
    assert orjson.loads(line)["response"]["body"] == {"id": "x\n"}


def test_the_same_row_gives_the_same_line_and_another_row_another_id() -> None:
    one, two = Completion(1, 200, b"{}"), Completion(2, 200, b"{}")

    assert result_line("a", one) == result_line("a", one)
    assert orjson.loads(result_line("a", one))["id"] != orjson.loads(result_line("a", two))["id"]


def test_a_failed_row_keeps_its_status_and_error_body() -> None:
    body = {"error": {"message": "too long", "code": 400}}

    record = orjson.loads(result_line("a", Completion(3, 400, orjson.dumps(body))))

    assert record["response"]["status_code"] == 400
    assert record["response"]["body"] == body
    assert record["error"] is None


def test_a_rejected_line_is_keyed_by_file_and_line() -> None:
    rejection = Rejection(17, 5, "another vendor's form", "the form of someone", "taken")

    record = orjson.loads(rejected_line("a b.jsonl", rejection))

    assert record["custom_id"] == "a b.jsonl:17"
    assert record["response"] is None
    assert record["error"] == {
        "code": "another_vendors_form",
        "message": "a b.jsonl:17:5: the form of someone",
        "line": 17,
        "column": 5,
        "custom_id": "taken",
    }
