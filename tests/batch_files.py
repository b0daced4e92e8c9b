"""Request files and jobs for tests of the commands."""

import json
from pathlib import Path
from typing import Any

from blend.cli.app import main


def chat(custom_id: str, text: str, **fields: Any) -> dict[str, Any]:
    """Return one chat request in OpenAI batch form."""
    messages = [{"role": "system", "content": "You are a tutor."}]
    body = {"model": "m", "messages": [*messages, {"role": "user", "content": text}], **fields}
    return {
        "custom_id": custom_id,
        "method": "POST",
        "url": "/v1/chat/completions",
        "body": body,
    }


def completion(custom_id: str, prompt: str | list[str], **fields: Any) -> dict[str, Any]:
    """Return one completion request in OpenAI batch form."""
    return {
        "custom_id": custom_id,
        "method": "POST",
        "url": "/v1/completions",
        "body": {"model": "m", "prompt": prompt, **fields},
    }


def mixed(count: int) -> list[dict[str, Any]]:
    """Return short answers behind a long shared prefix among long answers to short prompts."""
    shots = "The following are multiple choice questions. " * 60
    return [
        completion(f"choice-{i}", f"{shots}Question {i}: A or B?", max_tokens=2)
        if i % 2
        else chat(f"essay-{i}", f"Write about the number {i}.", max_tokens=60 + i)
        for i in range(count)
    ]


def write_requests(path: Path, requests: list[dict[str, Any]]) -> Path:
    """Write a request file and return its path."""
    path.write_text("".join(json.dumps(request) + "\n" for request in requests))
    return path


def read_lines(path: Path) -> list[dict[str, Any]]:
    """Return the objects of a JSONL file."""
    return [json.loads(line) for line in path.read_text().split("\n") if line]


def ingested(path: Path, requests: list[dict[str, Any]], *, model: Path) -> Path:
    """Return a job at *path* that holds *requests*."""
    source = write_requests(path.with_suffix(".jsonl"), requests)
    assert main(["ingest", str(source), "--job", str(path), "--model", str(model)]) == 0
    return path


def planned(path: Path, requests: list[dict[str, Any]], *, model: Path) -> Path:
    """Return a job at *path* that holds *requests*, planned without a sample."""
    ingested(path, requests, model=model)
    assert main(["plan", str(path), "--no-sample", "--hardware", "a100-80g"]) == 0
    return path
