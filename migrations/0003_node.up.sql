-- The life of nodes: how their installation stands, what installs them, and who promotes them.

ALTER TABLE machines
    -- Failed install attempts since the counter was reset, and what the last one said.
    ADD COLUMN install_attempts   integer NOT NULL DEFAULT 0 CHECK (install_attempts >= 0),
    ADD COLUMN last_install_error text    NOT NULL DEFAULT '',
    -- What a reimage runs where it names no plan; NULL is the type's default.
    ADD COLUMN plan_id            text REFERENCES plans,
    -- The plan under which the attempts were spent.
    ADD COLUMN failed_plan_id     text    NOT NULL DEFAULT '';

CREATE TABLE node_groups (
    node_group   text PRIMARY KEY,
    -- installed becomes active by itself.
    auto_promote boolean     NOT NULL DEFAULT false,
    updated_at   timestamptz NOT NULL
);

-- The last word of an installer that reports by itself. A live view: it moves no version of the machine.
CREATE TABLE node_reports (
    machine_id           text PRIMARY KEY REFERENCES machines,
    mac                  macaddr     NOT NULL,
    ip_address           text        NOT NULL DEFAULT '',
    hostname             text        NOT NULL DEFAULT '',
    vendor               text        NOT NULL DEFAULT '',
    model                text        NOT NULL DEFAULT '',
    serial_number        text        NOT NULL DEFAULT '',
    system_uuid          text        NOT NULL DEFAULT '',
    installation_status  text        NOT NULL DEFAULT '',
    installation_percent integer     NOT NULL DEFAULT 0 CHECK (installation_percent BETWEEN 0 AND 100),
    reported_at          timestamptz NOT NULL
);
