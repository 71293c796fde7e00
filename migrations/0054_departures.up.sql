-- Callers with selections follow the machines of those selections. A machine that leaves one is a tombstone to them, so a
-- reader must know what the machine was before. Here lies that, in the order of changes: what selections choose by.
CREATE TABLE machine_departures (
    -- The transaction that has replaced the values.
    change_xid      xid8        NOT NULL,
    machine_id      text        NOT NULL,
    -- The machine's updated_at by that transaction.
    changed_at      timestamptz NOT NULL,
    labels          jsonb       NOT NULL,
    -- Of the spec the fields that a selection can name.
    spec            jsonb       NOT NULL,
    os_image_digest text        NOT NULL,
    PRIMARY KEY (change_xid, machine_id)
);
CREATE INDEX machine_departures_by_machine ON machine_departures (machine_id, change_xid);
CREATE INDEX machine_departures_by_time ON machine_departures (changed_at);

-- Retention has removed departures up to this transaction, and those before this time. A reader that stands there has
-- missed some.
ALTER TABLE cluster_state ADD COLUMN departures_through xid8 NOT NULL DEFAULT '0';
ALTER TABLE cluster_state ADD COLUMN departures_since timestamptz NOT NULL DEFAULT clock_timestamp();

-- The fields of a spec that a selection can name.
CREATE FUNCTION selectable_spec(spec jsonb) RETURNS jsonb LANGUAGE sql IMMUTABLE AS $$
    SELECT jsonb_strip_nulls(jsonb_build_object('provider', spec -> 'provider', 'site', spec -> 'site',
        'region', spec -> 'region', 'rack', spec -> 'rack', 'group', spec -> 'group', 'location', spec -> 'location',
        'serial', spec -> 'serial', 'target_cluster_ref', spec -> 'target_cluster_ref'))
$$;

-- The first change of a transaction counts: what it replaces is what others have seen.
CREATE FUNCTION machine_departs() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF NEW.deleted_at IS NOT NULL OR NEW.labels <> OLD.labels OR NEW.os_image_digest <> OLD.os_image_digest
        OR selectable_spec(NEW.spec) <> selectable_spec(OLD.spec) THEN
        INSERT INTO machine_departures (change_xid, machine_id, changed_at, labels, spec, os_image_digest)
        VALUES (pg_current_xact_id(), OLD.machine_id, NEW.updated_at, OLD.labels, selectable_spec(OLD.spec), OLD.os_image_digest)
        ON CONFLICT DO NOTHING;
    END IF;
    RETURN NULL;
END $$;
CREATE TRIGGER machines_depart AFTER UPDATE ON machines FOR EACH ROW
    WHEN (OLD.deleted_at IS NULL AND (NEW.deleted_at IS NOT NULL OR NEW.labels IS DISTINCT FROM OLD.labels
        OR NEW.spec IS DISTINCT FROM OLD.spec OR NEW.os_image_digest IS DISTINCT FROM OLD.os_image_digest))
    EXECUTE FUNCTION machine_departs();

-- Reports whether a machine is in one of the selections: an array of selections, each an array of terms {key, negated, regexp}
-- that must all hold. It reads the values as WalkMachines does.
CREATE FUNCTION in_selections(selections jsonb, machine_id text, labels jsonb, spec jsonb, image text) RETURNS boolean
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
