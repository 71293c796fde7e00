-- What people know a machine by, in small letters: a line each, KIND, a tab, the value, and a newline at both ends. A kind in
-- capitals is no part of what is looked for. source is 'record', or 'inventory' of the last one that was reported.
CREATE TABLE machine_names (
    machine_id text COLLATE "C" NOT NULL REFERENCES machines,
    source     text COLLATE "C" NOT NULL,
    words      text COLLATE "C" NOT NULL,
    PRIMARY KEY (machine_id, source)
);

CREATE FUNCTION set_machine_names(id text, origin text, kinds text[], texts text[]) RETURNS void LANGUAGE sql AS $$
    INSERT INTO machine_names (machine_id, source, words)
    SELECT id, origin, coalesce(E'\n' || string_agg(DISTINCT n.kind || E'\t' || lower(translate(n.value, E'\n\t', '  ')), E'\n') || E'\n', '')
    FROM unnest(kinds, texts) AS n(kind, value) WHERE n.value <> ''
    ON CONFLICT (machine_id, source) DO UPDATE SET words = EXCLUDED.words WHERE machine_names.words <> EXCLUDED.words
$$;

CREATE FUNCTION name_machine(m machines) RETURNS void LANGUAGE sql AS $$
    SELECT set_machine_names(m.machine_id, 'record', array_agg(n.kind), array_agg(n.value)) FROM (
        VALUES ('MACHINE_ID', m.machine_id), ('EXTERNAL_ID', m.external_id), ('SERIAL', m.spec ->> 'serial'),
               ('BMC', m.spec ->> 'bmc_endpoint'), ('SSH', m.spec ->> 'ssh_endpoint'),
               ('ADDRESS', m.spec ->> 'install_address'), ('ADDRESS', m.probe_ip)
        UNION ALL SELECT 'MAC', a.value FROM jsonb_array_elements_text(coalesce(m.spec -> 'mac_addresses', '[]')) a
        UNION ALL SELECT 'LABEL', l.key || '=' || l.value FROM jsonb_each_text(m.labels) l) AS n(kind, value)
$$;

CREATE FUNCTION name_machine_by_inventory(id text, document jsonb) RETURNS void LANGUAGE sql AS $$
    SELECT set_machine_names(id, 'inventory', array_agg(n.kind), array_agg(n.value)) FROM (
        VALUES ('SERIAL', document #>> '{system,serial}'), ('UUID', document #>> '{system,uuid}'),
               ('ASSET_TAG', document #>> '{system,asset_tag}'), ('HOSTNAME', document #>> '{os,hostname}'),
               ('BMC', document #>> '{bmc,address}')
        UNION ALL SELECT 'MAC', e.value ->> 'mac'
        FROM jsonb_array_elements(CASE jsonb_typeof(document -> 'nics') WHEN 'array' THEN document -> 'nics' ELSE '[]' END) e
        UNION ALL SELECT 'DISK', d.value ->> 'serial'
        FROM jsonb_array_elements(CASE jsonb_typeof(document -> 'disks') WHEN 'array' THEN document -> 'disks' ELSE '[]' END) d)
        AS n(kind, value)
$$;

CREATE FUNCTION machines_named() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    PERFORM name_machine(NEW);
    RETURN NULL;
END $$;
CREATE TRIGGER machines_named AFTER INSERT OR UPDATE OF labels, spec, external_id, probe_ip ON machines
    FOR EACH ROW EXECUTE FUNCTION machines_named();

CREATE FUNCTION inventories_named() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    PERFORM name_machine_by_inventory(NEW.machine_id, NEW.document);
    RETURN NULL;
END $$;
CREATE TRIGGER inventories_named AFTER INSERT ON inventories FOR EACH ROW EXECUTE FUNCTION inventories_named();

SELECT name_machine(m) FROM machines m;
SELECT name_machine_by_inventory(i.machine_id, i.document)
FROM (SELECT DISTINCT ON (machine_id) machine_id, document FROM inventories ORDER BY machine_id, reported_at DESC) i;
