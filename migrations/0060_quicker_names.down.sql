DROP FUNCTION keep_machine_names(text, text, text);
DROP FUNCTION machine_name_line(text, text);

CREATE FUNCTION set_machine_names(id text, origin text, kinds text[], texts text[]) RETURNS void LANGUAGE sql AS $$
    INSERT INTO machine_names (machine_id, source, words)
    SELECT id, origin, coalesce(E'\n' || string_agg(DISTINCT n.kind || E'\t' || lower(translate(n.value, E'\n\t', '  ')), E'\n') || E'\n', '')
    FROM unnest(kinds, texts) AS n(kind, value) WHERE n.value <> ''
    ON CONFLICT (machine_id, source) DO UPDATE SET words = EXCLUDED.words WHERE machine_names.words <> EXCLUDED.words
$$;

CREATE OR REPLACE FUNCTION name_machine(m machines) RETURNS void LANGUAGE sql AS $$
    SELECT set_machine_names(m.machine_id, 'record', array_agg(n.kind), array_agg(n.value)) FROM (
        VALUES ('MACHINE_ID', m.machine_id), ('EXTERNAL_ID', m.external_id), ('SERIAL', m.spec ->> 'serial'),
               ('BMC', m.spec ->> 'bmc_endpoint'), ('SSH', m.spec ->> 'ssh_endpoint'),
               ('ADDRESS', m.spec ->> 'install_address'), ('ADDRESS', m.probe_ip)
        UNION ALL SELECT 'MAC', a.value FROM jsonb_array_elements_text(coalesce(m.spec -> 'mac_addresses', '[]')) a
        UNION ALL SELECT 'LABEL', l.key || '=' || l.value FROM jsonb_each_text(m.labels) l) AS n(kind, value)
$$;

CREATE OR REPLACE FUNCTION name_machine_by_inventory(id text, document jsonb) RETURNS void LANGUAGE sql AS $$
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

CREATE OR REPLACE FUNCTION machines_named() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    PERFORM name_machine(NEW);
    RETURN NULL;
END $$;
