-- Functions in SQL are planned anew at each call: the names of a machine tripled what an inventory costs. Statements in
-- PL/pgSQL are planned once in a session. Names that have not changed are not locked either.
DROP FUNCTION set_machine_names(text, text, text[], text[]);

CREATE FUNCTION machine_name_line(kind text, value text) RETURNS text LANGUAGE sql IMMUTABLE AS $$
    SELECT kind || E'\t' || lower(translate(value, E'\n\t', '  '))
$$;

CREATE FUNCTION keep_machine_names(id text, origin text, named text) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    line text := coalesce(E'\n' || named || E'\n', '');
BEGIN
    IF line IS DISTINCT FROM (SELECT n.words FROM machine_names n WHERE n.machine_id = id AND n.source = origin) THEN
        INSERT INTO machine_names (machine_id, source, words) VALUES (id, origin, line)
        ON CONFLICT (machine_id, source) DO UPDATE SET words = EXCLUDED.words;
    END IF;
END $$;

CREATE OR REPLACE FUNCTION name_machine(m machines) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    PERFORM keep_machine_names(m.machine_id, 'record', (
        SELECT string_agg(DISTINCT machine_name_line(n.kind, n.value), E'\n')
        FROM (VALUES ('MACHINE_ID', m.machine_id), ('EXTERNAL_ID', m.external_id), ('SERIAL', m.spec ->> 'serial'),
                     ('BMC', m.spec ->> 'bmc_endpoint'), ('SSH', m.spec ->> 'ssh_endpoint'),
                     ('ADDRESS', m.spec ->> 'install_address'), ('ADDRESS', m.probe_ip)
              UNION ALL SELECT 'MAC', a.value FROM jsonb_array_elements_text(coalesce(m.spec -> 'mac_addresses', '[]')) a
              UNION ALL SELECT 'LABEL', l.key || '=' || l.value FROM jsonb_each_text(m.labels) l) AS n(kind, value)
        WHERE n.value <> ''));
END $$;

CREATE OR REPLACE FUNCTION name_machine_by_inventory(id text, document jsonb) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    PERFORM keep_machine_names(id, 'inventory', (
        SELECT string_agg(DISTINCT machine_name_line(n.kind, n.value), E'\n')
        FROM (VALUES ('SERIAL', document #>> '{system,serial}'), ('UUID', document #>> '{system,uuid}'),
                     ('ASSET_TAG', document #>> '{system,asset_tag}'), ('HOSTNAME', document #>> '{os,hostname}'),
                     ('BMC', document #>> '{bmc,address}')
              UNION ALL SELECT 'MAC', e.value ->> 'mac'
              FROM jsonb_array_elements(CASE jsonb_typeof(document -> 'nics') WHEN 'array' THEN document -> 'nics' ELSE '[]' END) e
              UNION ALL SELECT 'DISK', d.value ->> 'serial'
              FROM jsonb_array_elements(CASE jsonb_typeof(document -> 'disks') WHEN 'array' THEN document -> 'disks' ELSE '[]' END) d)
              AS n(kind, value)
        WHERE n.value <> ''));
END $$;

CREATE OR REPLACE FUNCTION machines_named() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF TG_OP = 'INSERT' OR (NEW.labels, NEW.spec, NEW.external_id, NEW.probe_ip)
        IS DISTINCT FROM (OLD.labels, OLD.spec, OLD.external_id, OLD.probe_ip) THEN
        PERFORM name_machine(NEW);
    END IF;
    RETURN NULL;
END $$;
