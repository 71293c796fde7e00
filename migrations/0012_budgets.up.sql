-- How many machines may be lost at a time, per failure domain. 0 is no limit.
CREATE TABLE budgets (
    name       text PRIMARY KEY,
    -- fleet, site, or label:KEY.
    domain     text        NOT NULL,
    -- One value of the domain; empty is each by itself.
    value      text        NOT NULL,
    at_once    integer     NOT NULL CHECK (at_once >= 0),
    percent    integer     NOT NULL CHECK (percent BETWEEN 0 AND 100),
    per_hour   integer     NOT NULL CHECK (per_hour >= 0),
    per_day    integer     NOT NULL CHECK (per_day >= 0),
    updated_at timestamptz NOT NULL
);

ALTER TABLE operations ADD COLUMN destructive boolean NOT NULL DEFAULT false;

-- Who waits for a slot, in order.
CREATE INDEX operations_waiting_for_slots ON operations (created_at, operation_id) WHERE destructive AND phase = 'PENDING';

-- One for each destructive operation that may act. Site and labels are those of when it was taken: who may change a
-- label must not be able to move what is held out of its domain.
CREATE TABLE budget_slots (
    operation_id text PRIMARY KEY REFERENCES operations,
    machine_id   text        NOT NULL,
    site         text        NOT NULL,
    labels       jsonb       NOT NULL,
    taken_at     timestamptz NOT NULL,
    released_at  timestamptz
);

-- A machine holds one at most: a further operation takes over that of the one before.
CREATE UNIQUE INDEX budget_slots_held ON budget_slots (machine_id) WHERE released_at IS NULL;
CREATE INDEX budget_slots_taken ON budget_slots (taken_at);
