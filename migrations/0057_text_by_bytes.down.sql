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
                   format('ALTER COLUMN %I TYPE %s COLLATE "default"', a.attname, format_type(a.atttypid, a.atttypmod)), ', '
                   ORDER BY a.attnum))
        FROM pg_attribute a
        JOIN pg_class c ON c.oid = a.attrelid
        JOIN pg_namespace n ON n.oid = c.relnamespace
        WHERE n.nspname = current_schema() AND c.relkind IN ('r', 'p') AND NOT c.relispartition
          AND c.relname NOT LIKE 'river\_%' AND a.attnum > 0 AND NOT a.attisdropped
          AND a.attcollation = 'pg_catalog."C"'::regcollation
          AND (c.relname, a.attname) NOT IN (('budgets', 'harm'), ('budget_slots', 'harm'))
        GROUP BY c.relname
    LOOP
        EXECUTE made;
    END LOOP;
    FOREACH made IN ARRAY triggers || views LOOP
        EXECUTE made;
    END LOOP;
END
$$;
DROP INDEX machines_by_bmc, machines_by_bmc_credentials, commands_hardware_tests;
CREATE INDEX machines_by_bmc ON machines (site, (spec ->> 'bmc_endpoint')) WHERE deleted_at IS NULL AND spec ->> 'bmc_endpoint' <> '';
CREATE INDEX machines_by_bmc_credentials ON machines ((spec ->> 'bmc_credentials_ref')) WHERE deleted_at IS NULL AND spec ->> 'bmc_credentials_ref' <> '';
CREATE INDEX commands_hardware_tests ON commands ((evidence ->> 'hardware_model'), created_at DESC) WHERE kind = 'test_hardware';
