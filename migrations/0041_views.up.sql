-- Lists of machines that people save under a name.
CREATE TABLE saved_views (
    name                text        PRIMARY KEY,
    title               text        NOT NULL,
    description         text        NOT NULL,
    -- A filter of machines; empty is all of them.
    filter              text        NOT NULL,
    order_by            text        NOT NULL,
    columns             text[]      NOT NULL,
    group_by            text[]      NOT NULL,
    -- Seen by everybody; otherwise by its owner alone.
    shared              boolean     NOT NULL,
    -- The owner: the name, and who is behind it.
    created_by          text        NOT NULL,
    created_by_identity text        NOT NULL,
    created_at          timestamptz NOT NULL,
    updated_at          timestamptz NOT NULL,
    version             bigint      NOT NULL DEFAULT 1
);
