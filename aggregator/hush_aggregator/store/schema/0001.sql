-- The tables of a store, in a schema that the program names and has made. No sender, and no time of a report: who
-- reported when is nobody's business, so it is never written down. What the quotas know is in a schema of its own
-- (see 0001-quota.sql).

CREATE TABLE meta ( -- one row
    one boolean PRIMARY KEY DEFAULT true CHECK (one),
    schema_version integer NOT NULL,
    store text NOT NULL, -- the name that estimates bear
    place text NOT NULL, -- cluster, database and timeline: others after a restore, also after a fail-over
    restored boolean NOT NULL DEFAULT false, -- put back from a backup, and the aggregator has not reacted yet
    newest text NOT NULL DEFAULT '' -- the newest day (UTC) on which the store was in use, noted whether reports come or not
);

CREATE TABLE worker ( -- of a group of aggregators; the worker '' stands for commands
    name text PRIMARY KEY,
    session text NOT NULL, -- id of the session on the broker; secret, or anyone could take what waits there
    version bigint NOT NULL DEFAULT 0, -- how many transactions have written; it says nothing of a time
    changes bigint NOT NULL DEFAULT 0, -- how many of them wrote something other than reports
    session_left boolean NOT NULL DEFAULT false, broker_started bigint, broker_alive bigint, broker_dropped bigint
);

CREATE TABLE task ( -- see store/reading.py
    id text COLLATE "C" PRIMARY KEY, digest bytea NOT NULL UNIQUE, payload bytea NOT NULL,
    origin text NOT NULL CHECK (origin IN ('file', 'command', 'http', 'broker')),
    state text NOT NULL DEFAULT 'open' CHECK (state IN ('open', 'withdrawn', 'closed')),
    owner text NOT NULL DEFAULT '', term bigint NOT NULL DEFAULT 0, taken_from text NOT NULL DEFAULT '',
    release_from bigint NOT NULL, release_every bigint NOT NULL
);

CREATE TABLE series ( -- the reports of a round
    series integer GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    digest bytea NOT NULL, round bigint NOT NULL,
    width integer NOT NULL, -- how many integers each of their bodies has
    part integer NOT NULL, -- the partition of its reports; 0 is for the series beyond the first thousand
    dropped integer NOT NULL DEFAULT 0, -- by policy: 1 while that goes on, and 2 afterwards
    UNIQUE (digest, round)
);

CREATE TABLE report (
    part integer NOT NULL, series integer NOT NULL, id uuid NOT NULL,
    body bytea NOT NULL, -- integers of 1, 2, 4 or 8 bytes each, big-endian
    PRIMARY KEY (part, series, id)
) PARTITION BY LIST (part);
CREATE TABLE report_0 PARTITION OF report FOR VALUES IN (0);

CREATE TABLE tally ( -- each worker writes its own rows, and readers add them up
    digest bytea NOT NULL, round bigint NOT NULL, worker text NOT NULL,
    n bigint NOT NULL, moments text NOT NULL, -- a JSON list of integers, which outgrow 64 bits
    seal bytea NOT NULL,
    PRIMARY KEY (digest, round, worker)
);

CREATE TABLE refusal (
    task text COLLATE "C" NOT NULL, reason text NOT NULL, worker text NOT NULL, count bigint NOT NULL,
    PRIMARY KEY (task, reason, worker)
);

CREATE TABLE closed ( -- nothing counts there any more, whatever the clock says; round -1 is the whole task
    digest bytea NOT NULL, round bigint NOT NULL, at bigint NOT NULL, PRIMARY KEY (digest, round)
);

CREATE TABLE released ( -- of tasks with a release policy: the sums of their tallies at the last release
    digest bytea NOT NULL, round bigint NOT NULL, n bigint NOT NULL, moments text NOT NULL, seal bytea NOT NULL,
    PRIMARY KEY (digest, round)
);

CREATE TABLE release ( -- the last release of a task; refused: counts by reason; closed: the rounds that were, -1 for all
    digest bytea PRIMARY KEY, at bigint NOT NULL, refused json NOT NULL, closed bigint[] NOT NULL
);

CREATE VIEW seen_tally AS -- what may be said of a task
SELECT digest, round, sum(n) AS n FROM tally WHERE NOT EXISTS (
    SELECT 1 FROM task WHERE task.digest = tally.digest AND release_from + release_every > 0) GROUP BY digest, round
UNION ALL SELECT digest, round, n FROM released;

CREATE VIEW seen_refusal AS
SELECT task, reason, count FROM refusal WHERE NOT EXISTS (
    SELECT 1 FROM task WHERE task.id = refusal.task AND release_from + release_every > 0)
UNION ALL
SELECT id, key, value::bigint FROM release JOIN task USING (digest), json_each_text(refused);

CREATE TABLE recall ( -- the last of each task; made: seconds since 1970; ended: to be cleared on the broker
    task text COLLATE "C" PRIMARY KEY, digest bytea NOT NULL, id bytea NOT NULL, over bigint NOT NULL,
    made bigint NOT NULL, ended boolean NOT NULL
);

CREATE TABLE lease ( -- one row: which worker publishes
    one boolean PRIMARY KEY DEFAULT true CHECK (one),
    holder text NOT NULL DEFAULT '', number bigint NOT NULL DEFAULT 0, -- rises with each new holder
    expires timestamptz NOT NULL DEFAULT '-infinity' -- by the clock of the database
);
INSERT INTO lease DEFAULT VALUES;
