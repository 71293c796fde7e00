-- Generations of the CA. The first has its keys in the directory of every controller; those of the others are sealed here, so
-- that every controller gets them.
CREATE TABLE certificate_authorities (
    generation       integer     PRIMARY KEY CHECK (generation > 0),
    root_pem         bytea       NOT NULL,
    intermediate_pem bytea       NOT NULL,
    -- The intermediate's certificates by the roots before.
    cross_pem        bytea       NOT NULL,
    sealed_keys      bytea       NOT NULL,
    created_at       timestamptz NOT NULL,
    created_by       text        NOT NULL,
    withdrawn_at     timestamptz,
    withdrawn_by     text        NOT NULL DEFAULT ''
);
ALTER TABLE agent_certs ADD COLUMN ca_generation integer NOT NULL DEFAULT 1;
