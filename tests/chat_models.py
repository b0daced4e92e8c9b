"""Model folders that differ from the tiny one by their chat template or config alone."""

import json
import shutil
from pathlib import Path
from typing import Any


def with_template(tiny: Path, directory: Path, template: str | None) -> Path:
    """Copy the tiny tokenizer to *directory* with another chat template, or with none."""
    folder = _copied(tiny, directory)
    settings = json.loads((folder / "tokenizer_config.json").read_text())
    settings.pop("chat_template")
    if template is not None:
        settings["chat_template"] = template
    (folder / "tokenizer_config.json").write_text(json.dumps(settings))
    return folder


def with_config(tiny: Path, directory: Path, **members: Any) -> Path:
    """Copy the tiny tokenizer to *directory* with members of its config.json replaced."""
    folder = _copied(tiny, directory)
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | members))
    return folder


def _copied(tiny: Path, directory: Path) -> Path:
    shutil.copytree(tiny, directory, ignore=shutil.ignore_patterns("*.safetensors"))
    return directory
