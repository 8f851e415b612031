-- Added later: a store without it is one that has no steps yet. See store/steps.py.

CREATE TABLE step (
    digest bytea NOT NULL, round bigint NOT NULL,
    until bigint NOT NULL, -- the end of an hour or a day, in seconds since 1970
    n bigint NOT NULL, mean double precision, low double precision, high double precision, -- low, high: of the interval
    confidence double precision NOT NULL,
    PRIMARY KEY (digest, round, until)
);
CREATE INDEX step_of_hour ON step (until) WHERE until % 86400 <> 0;
