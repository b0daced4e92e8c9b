-- One batch job. `row` is the key everywhere: 0, 1, 2, … in the order of ingestion.
-- Columns that are counted and the bytes that are only fetched live in separate tables (requests and
-- bodies, results and answers), so that looking at a job of 400,000 rows never reads its texts.

CREATE TABLE meta (
    key TEXT PRIMARY KEY,
    value TEXT NOT NULL CHECK (json_valid(value))
) STRICT, WITHOUT ROWID;

CREATE TABLE blobs (
    key TEXT PRIMARY KEY,
    value BLOB NOT NULL
) STRICT;

-- Where rows came from. `offset_bytes` and `lines` say how far the file is ingested; they move in the
-- same transaction as the rows, so that a killed ingest continues without duplicates.
CREATE TABLE sources (
    source INTEGER PRIMARY KEY,
    path TEXT NOT NULL,
    size_bytes INTEGER NOT NULL CHECK (size_bytes >= 0),
    digest TEXT NOT NULL,
    offset_bytes INTEGER NOT NULL DEFAULT 0 CHECK (offset_bytes >= 0),
    lines INTEGER NOT NULL DEFAULT 0 CHECK (lines >= 0),
    complete INTEGER NOT NULL DEFAULT 0 CHECK (complete IN (0, 1)),
    UNIQUE (path, size_bytes, digest)
) STRICT;

CREATE TABLE requests (
    row INTEGER PRIMARY KEY CHECK (row >= 0),
    custom_id TEXT NOT NULL UNIQUE,
    source INTEGER NOT NULL REFERENCES sources,
    line INTEGER NOT NULL CHECK (line > 0),
    endpoint TEXT NOT NULL CHECK (endpoint LIKE '/v1/%'),
    prompt_tokens INTEGER NOT NULL CHECK (prompt_tokens >= 0),
    max_tokens INTEGER NOT NULL CHECK (max_tokens >= 0),
    sequences INTEGER NOT NULL CHECK (sequences > 0)
) STRICT;

-- The request body, byte for byte as the user wrote it.
CREATE TABLE bodies (
    row INTEGER PRIMARY KEY REFERENCES requests,
    body BLOB NOT NULL
) STRICT;

-- The rendered prompt: token ids as little-endian uint32.
CREATE TABLE prompts (
    row INTEGER PRIMARY KEY REFERENCES requests,
    tokens BLOB NOT NULL CHECK (length(tokens) % 4 = 0)
) STRICT;

CREATE TABLE rejected (
    source INTEGER NOT NULL REFERENCES sources,
    line INTEGER NOT NULL,
    column INTEGER NOT NULL,
    reason TEXT NOT NULL,
    message TEXT NOT NULL,
    custom_id TEXT,
    PRIMARY KEY (source, line)
) STRICT, WITHOUT ROWID;

CREATE INDEX rejected_by_reason ON rejected (reason, source, line);

CREATE TABLE plans (
    plan INTEGER PRIMARY KEY,
    policy TEXT NOT NULL,
    settings TEXT NOT NULL CHECK (json_valid(settings)),
    digests TEXT NOT NULL CHECK (json_valid(digests)),
    predictions TEXT NOT NULL CHECK (json_valid(predictions)),
    outline TEXT NOT NULL CHECK (json_valid(outline)),
    root_density REAL NOT NULL,
    created REAL NOT NULL
) STRICT;

-- The order of the latest plan. `side`: 0 = left, compute-bound; 1 = right, memory-bound.
-- `length_source` is the code of the estimate's origin in blend.core.planning.lengths.
CREATE TABLE schedule (
    plan INTEGER NOT NULL REFERENCES plans,
    position INTEGER NOT NULL CHECK (position >= 0),
    row INTEGER NOT NULL REFERENCES requests,
    side INTEGER NOT NULL CHECK (side IN (0, 1)),
    replica INTEGER NOT NULL DEFAULT 0,
    expected_tokens REAL NOT NULL,
    uncached_tokens INTEGER NOT NULL,
    density REAL NOT NULL,
    length_source INTEGER,
    PRIMARY KEY (plan, position)
) STRICT, WITHOUT ROWID;

CREATE UNIQUE INDEX schedule_by_row ON schedule (plan, row);

-- What the warm-up saw: output tokens so far; `finished` = 0 when it was cut off.
CREATE TABLE samples (
    plan INTEGER NOT NULL REFERENCES plans,
    row INTEGER NOT NULL REFERENCES requests,
    tokens REAL NOT NULL CHECK (tokens >= 0),
    finished INTEGER NOT NULL CHECK (finished IN (0, 1)),
    PRIMARY KEY (plan, row)
) STRICT, WITHOUT ROWID;

CREATE TABLE runs (
    run INTEGER PRIMARY KEY,
    purpose TEXT NOT NULL CHECK (purpose IN ('sample', 'execute')),
    engine TEXT NOT NULL,
    settings TEXT NOT NULL CHECK (json_valid(settings)),
    host TEXT NOT NULL,
    pid INTEGER NOT NULL,
    boot_id TEXT NOT NULL,
    started REAL NOT NULL,
    heartbeat REAL NOT NULL,
    finished REAL,
    outcome TEXT,
    CHECK ((finished IS NULL) = (outcome IS NULL))
) STRICT;

-- The rows that were given to an engine and have no result yet: how often, and the run that each is
-- in flight in now. Small at any time, so that starting a row costs almost nothing.
CREATE TABLE attempts (
    row INTEGER PRIMARY KEY REFERENCES requests,
    attempts INTEGER NOT NULL CHECK (attempts > 0),
    running_in INTEGER REFERENCES runs
) STRICT;

CREATE INDEX attempts_running ON attempts (row) WHERE running_in IS NOT NULL;

-- The response bodies, or error bodies, byte for byte as the engine gave them. Kept in the order of
-- arrival: in row order, every answer would rewrite a page of its own.
CREATE TABLE answers (
    answer INTEGER PRIMARY KEY,
    body BLOB NOT NULL
) STRICT;

-- `row` as the primary key is the exactly-once guarantee: no row ever has two results.
-- `reason` is the beginning of the error's message where status_code is not 200.
CREATE TABLE results (
    row INTEGER PRIMARY KEY REFERENCES requests,
    run INTEGER NOT NULL REFERENCES runs,
    attempts INTEGER NOT NULL CHECK (attempts >= 0),
    status_code INTEGER NOT NULL CHECK (status_code BETWEEN 100 AND 599),
    finish_reason TEXT,
    prompt_tokens INTEGER NOT NULL CHECK (prompt_tokens >= 0),
    completion_tokens INTEGER NOT NULL CHECK (completion_tokens >= 0),
    cached_tokens INTEGER NOT NULL CHECK (cached_tokens >= 0),
    started REAL NOT NULL,
    finished REAL NOT NULL,
    reason TEXT CHECK ((reason IS NULL) = (status_code = 200)),
    answer INTEGER NOT NULL REFERENCES answers
) STRICT;

CREATE INDEX results_failed ON results (row) WHERE status_code <> 200;

-- The sampled timeline of a run: token counts and steps are differences since the line before.
CREATE TABLE steps (
    step INTEGER PRIMARY KEY,
    run INTEGER NOT NULL REFERENCES runs,
    seconds REAL NOT NULL,
    steps INTEGER NOT NULL,
    running INTEGER NOT NULL,
    waiting INTEGER NOT NULL,
    kv_tokens INTEGER NOT NULL,
    prefill_tokens INTEGER NOT NULL,
    decode_tokens INTEGER NOT NULL,
    cached_tokens INTEGER NOT NULL,
    preemptions INTEGER NOT NULL,
    answered INTEGER NOT NULL
) STRICT;

CREATE INDEX steps_by_run ON steps (run);

-- Everything about a row on one line, for people with sqlite-utils or datasette.
CREATE VIEW overview AS
SELECT
    requests.row,
    custom_id,
    path || ':' || line AS origin,
    CASE
        WHEN status_code = 200 THEN 'answered'
        WHEN status_code IS NOT NULL THEN 'failed'
        WHEN running_in IS NOT NULL THEN 'running'
        ELSE 'pending'
    END AS state,
    coalesce(results.attempts, attempts.attempts, 0) AS attempts,
    requests.prompt_tokens,
    completion_tokens,
    cached_tokens,
    finish_reason,
    reason,
    CAST(bodies.body AS TEXT) AS request,
    CAST(answers.body AS TEXT) AS answer
FROM requests
JOIN sources USING (source)
JOIN bodies ON bodies.row = requests.row
LEFT JOIN attempts ON attempts.row = requests.row
LEFT JOIN results ON results.row = requests.row
LEFT JOIN answers USING (answer);
