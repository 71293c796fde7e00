-- A machine's rack: the field of its spec, or else its label "rack". NULL where neither names one. The field comes first,
-- since roles, lists and NetBox read it: a label adds machines without one and moves no other. Budgets count both names.
CREATE FUNCTION rack_of(labels jsonb, spec jsonb) RETURNS text LANGUAGE sql IMMUTABLE AS $$
    SELECT coalesce(nullif(spec ->> 'rack', ''), nullif(labels ->> 'rack', ''))
$$;
CREATE INDEX machines_by_rack ON machines USING hash (rack_of(labels, spec)) WHERE deleted_at IS NULL;

-- As before, with the rack.
CREATE OR REPLACE FUNCTION in_selections(selections jsonb, machine_id text, labels jsonb, spec jsonb, image text) RETURNS boolean
LANGUAGE sql IMMUTABLE AS $$
    SELECT EXISTS (
        SELECT 1 FROM jsonb_array_elements(selections) s
        WHERE NOT EXISTS (
            SELECT 1 FROM jsonb_to_recordset(s.value) AS t(key text, negated boolean, regexp text)
            WHERE coalesce(CASE WHEN t.key = 'machine_id' THEN machine_id
                                WHEN t.key = 'image' THEN nullif(image, '')
                                WHEN t.key = 'rack' THEN rack_of(labels, spec)
                                WHEN starts_with(t.key, 'labels.') THEN labels ->> substr(t.key, 8)
                                ELSE nullif(spec ->> t.key, '') END ~ t.regexp, false) = t.negated))
$$;

-- The rack by the spec, of the machine at the request and when the slot was taken. The labels beside it have the other name.
ALTER TABLE operations ADD COLUMN request_rack text COLLATE "C";
ALTER TABLE budget_slots ADD COLUMN rack text COLLATE "C";
CREATE OR REPLACE FUNCTION operation_request_place() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    SELECT m.site, m.labels, m.spec ->> 'rack' INTO NEW.request_site, NEW.request_labels, NEW.request_rack
    FROM machines m WHERE m.machine_id = NEW.target_id;
    RETURN NEW;
END $$;

-- The token, or the identity with its groups, by whose rights a rollout works. They are read anew before each machine. Without
-- a key: the controller's own, or of before.
ALTER TABLE rollouts ADD COLUMN rights_from jsonb NOT NULL DEFAULT '{}';
