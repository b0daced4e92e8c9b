"""One good request line, and fourteen that are broken, each in its own way, by reason."""

GOOD = '{"custom_id": "%s", "method": "POST", "url": "/v1/completions", "body": {"prompt": "x"}}'

BROKEN = {
    "not JSON": '{"custom_id": "b1", ',
    "NaN or Infinity": '{"prompt": "x", "temperature": NaN}',
    "number out of range": '{"prompt": "x", "temperature": 1e999}',
    "unpaired surrogate": r'{"prompt": "\ud800"}',
    "control character": '{"prompt": "a\tb"}',
    "not an object": '["prompt"]',
    "git conflict marker": "<<<<<<< HEAD",
    "another vendor's form": '{"custom_id": "b2", "params": {}}',
    "unknown url": GOOD.replace("completions", "moderations") % "b3",
    "bad method": GOOD.replace("POST", "GET") % "b4",
    "missing body": '{"custom_id": "b5", "url": "/v1/completions"}',
    "unknown role": '{"messages": [{"role": "robot", "content": "x"}]}',
    "bad max_tokens": '{"prompt": "x", "max_tokens": -5}',
    "duplicate custom_id": GOOD % "good-3",
}
