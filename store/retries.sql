-- What `blend retry` does: each time it takes results back, so that their rows are pending again.

CREATE TABLE retries (
    retry INTEGER PRIMARY KEY,
    created REAL NOT NULL,
    asked TEXT NOT NULL
) STRICT;

-- The results that were taken back, as they stood in `results`. Nothing that was paid for is lost:
-- an answer stays the row's answer, for an export too, until a later one arrives.
CREATE TABLE earlier_results (
    row INTEGER NOT NULL REFERENCES requests,
    retry INTEGER NOT NULL REFERENCES retries,
    run INTEGER NOT NULL REFERENCES runs,
    attempts INTEGER NOT NULL,
    status_code INTEGER NOT NULL,
    finish_reason TEXT,
    prompt_tokens INTEGER NOT NULL,
    completion_tokens INTEGER NOT NULL,
    cached_tokens INTEGER NOT NULL,
    started REAL NOT NULL,
    finished REAL NOT NULL,
    reason TEXT,
    answer INTEGER NOT NULL REFERENCES answers,
    PRIMARY KEY (row, retry)
) STRICT, WITHOUT ROWID;

-- The limit of output tokens that a row was given by a retry; its body is sent with it and stays in
-- `bodies` as the user wrote it.
CREATE TABLE raised_limits (
    row INTEGER PRIMARY KEY REFERENCES requests,
    max_tokens INTEGER NOT NULL CHECK (max_tokens > 0)
) STRICT;
