ALTER TABLE rollouts DROP COLUMN rights_from;
CREATE OR REPLACE FUNCTION operation_request_place() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    SELECT m.site, m.labels INTO NEW.request_site, NEW.request_labels FROM machines m WHERE m.machine_id = NEW.target_id;
    RETURN NEW;
END $$;
ALTER TABLE budget_slots DROP COLUMN rack;
ALTER TABLE operations DROP COLUMN request_rack;
CREATE OR REPLACE FUNCTION in_selections(selections jsonb, machine_id text, labels jsonb, spec jsonb, image text) RETURNS boolean
LANGUAGE sql IMMUTABLE AS $$
    SELECT EXISTS (
        SELECT 1 FROM jsonb_array_elements(selections) s
        WHERE NOT EXISTS (
            SELECT 1 FROM jsonb_to_recordset(s.value) AS t(key text, negated boolean, regexp text)
            WHERE coalesce(CASE WHEN t.key = 'machine_id' THEN machine_id
                                WHEN t.key = 'image' THEN nullif(image, '')
                                WHEN starts_with(t.key, 'labels.') THEN labels ->> substr(t.key, 8)
                                ELSE nullif(spec ->> t.key, '') END ~ t.regexp, false) = t.negated))
$$;
DROP INDEX machines_by_rack;
DROP FUNCTION rack_of(jsonb, jsonb);
