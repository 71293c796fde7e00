-- Text is compared by its bytes, whatever collation the database was created with: an upgrade of libc or ICU changes the
-- order of the others, after which their indexes find nothing and unique ones take a key twice. River's tables are
-- River's. Views and triggers hold on to columns: they are made again as they were.
SET LOCAL statement_timeout = 0;
DO $$
DECLARE
    views    text[];
    triggers text[];
    made     text;
    gone     record;
BEGIN
    SELECT array_agg(format('CREATE VIEW %I AS %s', viewname, definition)) INTO views
    FROM pg_views WHERE schemaname = current_schema();
    SELECT array_agg(pg_get_triggerdef(t.oid)) INTO triggers
    FROM pg_trigger t JOIN pg_class c ON c.oid = t.tgrelid JOIN pg_namespace n ON n.oid = c.relnamespace
    WHERE n.nspname = current_schema() AND NOT t.tgisinternal AND c.relname NOT LIKE 'river\_%';
    FOR gone IN SELECT viewname FROM pg_views WHERE schemaname = current_schema() LOOP
        EXECUTE format('DROP VIEW %I', gone.viewname);
    END LOOP;
    FOR gone IN
        SELECT t.tgname, c.relname FROM pg_trigger t JOIN pg_class c ON c.oid = t.tgrelid
        JOIN pg_namespace n ON n.oid = c.relnamespace
        WHERE n.nspname = current_schema() AND NOT t.tgisinternal AND c.relname NOT LIKE 'river\_%'
    LOOP
        EXECUTE format('DROP TRIGGER %I ON %I', gone.tgname, gone.relname);
    END LOOP;
    FOR made IN
        SELECT format('ALTER TABLE %I %s', c.relname, string_agg(
                   format('ALTER COLUMN %I TYPE %s COLLATE "C"', a.attname, format_type(a.atttypid, a.atttypmod)), ', '
                   ORDER BY a.attnum))
        FROM pg_attribute a
        JOIN pg_class c ON c.oid = a.attrelid
        JOIN pg_namespace n ON n.oid = c.relnamespace
        WHERE n.nspname = current_schema() AND c.relkind IN ('r', 'p') AND NOT c.relispartition
          AND c.relname NOT LIKE 'river\_%' AND a.attnum > 0 AND NOT a.attisdropped
          AND a.attcollation = 'pg_catalog."default"'::regcollation
        GROUP BY c.relname
    LOOP
        EXECUTE made;
    END LOOP;
    FOREACH made IN ARRAY triggers || views LOOP
        EXECUTE made;
    END LOOP;
END
$$;

-- What documents hold has the collation of the database: hashes do not depend on it.
DROP INDEX machines_by_bmc, machines_by_bmc_credentials, commands_hardware_tests;
CREATE INDEX machines_by_bmc ON machines USING hash ((spec ->> 'bmc_endpoint')) WHERE deleted_at IS NULL AND spec ->> 'bmc_endpoint' <> '';
CREATE INDEX machines_by_bmc_credentials ON machines USING hash ((spec ->> 'bmc_credentials_ref')) WHERE deleted_at IS NULL AND spec ->> 'bmc_credentials_ref' <> '';
CREATE INDEX commands_hardware_tests ON commands ((evidence ->> 'hardware_model') COLLATE "C", created_at DESC) WHERE kind = 'test_hardware';

-- What other controllers have prepared returns the former collations, and would fail once each: they connect anew. Those
-- that wait to migrate have prepared nothing.
SELECT pg_terminate_backend(pid) FROM pg_stat_activity
WHERE datname = current_database() AND usename = current_user AND application_name LIKE 'ingot-controller%'
  AND pid <> pg_backend_pid() AND wait_event IS DISTINCT FROM 'advisory';
