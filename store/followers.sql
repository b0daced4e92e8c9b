-- Rows that do not run, because their request is identical to that of another row, and sampling
-- leaves nothing to chance. A follower gets its result in the transaction that brings its leader's.
CREATE TABLE followers (
    row INTEGER PRIMARY KEY REFERENCES requests,
    leader INTEGER NOT NULL REFERENCES requests
) STRICT;

CREATE INDEX followers_by_leader ON followers (leader);

-- The row whose run answered this one; NULL where that was its own. Such a result took no tokens.
ALTER TABLE results ADD COLUMN same_as INTEGER REFERENCES requests;

ALTER TABLE earlier_results ADD COLUMN same_as INTEGER REFERENCES requests;

DROP VIEW overview;

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
    leader AS follows,
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
LEFT JOIN followers ON followers.row = requests.row
LEFT JOIN attempts ON attempts.row = requests.row
LEFT JOIN results ON results.row = requests.row
LEFT JOIN answers USING (answer);
