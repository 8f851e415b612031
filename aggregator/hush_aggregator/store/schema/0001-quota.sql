-- What quotas know, in a schema of its own that no backup needs: see store/quotas.py.

CREATE TABLE round (
    number bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    digest bytea NOT NULL, round bigint NOT NULL, key bytea NOT NULL, day bigint NOT NULL,
    UNIQUE (digest, round)
);
CREATE TABLE charge (
    round bigint NOT NULL REFERENCES round ON DELETE CASCADE, sender bytea NOT NULL, n bigint NOT NULL,
    PRIMARY KEY (round, sender)
);
