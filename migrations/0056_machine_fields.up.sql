-- Who may write a field of a machine depends on what uses the field. What uses fields changes alone: the writers of
-- machines share the same lock until they commit, so that no grant slips in between their decision and their write.
CREATE FUNCTION field_uses_change() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    PERFORM pg_advisory_xact_lock(7022147285);
    RETURN NULL;
END $$;
CREATE TRIGGER role_bindings_field_uses BEFORE INSERT OR UPDATE ON role_bindings
    FOR EACH STATEMENT EXECUTE FUNCTION field_uses_change();
CREATE TRIGGER api_tokens_field_uses BEFORE INSERT OR UPDATE OF selection ON api_tokens
    FOR EACH STATEMENT EXECUTE FUNCTION field_uses_change();
CREATE TRIGGER budgets_field_uses BEFORE INSERT OR UPDATE ON budgets
    FOR EACH STATEMENT EXECUTE FUNCTION field_uses_change();
CREATE TRIGGER approval_policies_field_uses BEFORE INSERT OR UPDATE ON approval_policies
    FOR EACH STATEMENT EXECUTE FUNCTION field_uses_change();
CREATE TRIGGER sites_field_uses BEFORE UPDATE OF identity_level ON sites
    FOR EACH STATEMENT EXECUTE FUNCTION field_uses_change();
CREATE TRIGGER node_groups_field_uses BEFORE INSERT OR UPDATE OF identity_level ON node_groups
    FOR EACH STATEMENT EXECUTE FUNCTION field_uses_change();

-- The last machine of each MAC address that no machine has now. The hardware does not leave that machine's place by a new
-- record, after a deletion or a removal of the address.
CREATE TABLE released_macs (
    mac        macaddr PRIMARY KEY,
    machine_id text    NOT NULL REFERENCES machines
);
INSERT INTO released_macs (mac, machine_id)
SELECT DISTINCT ON (a.mac) a.mac::macaddr, m.machine_id
FROM machines m CROSS JOIN LATERAL jsonb_array_elements_text(m.spec -> 'mac_addresses') AS a(mac)
WHERE m.deleted_at IS NOT NULL AND NOT EXISTS (SELECT 1 FROM machine_macs x WHERE x.mac = a.mac::macaddr)
ORDER BY a.mac, m.deleted_at DESC, m.machine_id;
CREATE FUNCTION machine_mac_released() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF TG_OP = 'INSERT' THEN
        DELETE FROM released_macs WHERE mac = NEW.mac;
    ELSE
        INSERT INTO released_macs (mac, machine_id) VALUES (OLD.mac, OLD.machine_id)
        ON CONFLICT (mac) DO UPDATE SET machine_id = excluded.machine_id;
    END IF;
    RETURN NULL;
END $$;
CREATE TRIGGER machine_macs_released AFTER INSERT OR DELETE ON machine_macs
    FOR EACH ROW EXECUTE FUNCTION machine_mac_released();

-- Where the machine stood when the operation was asked for: its slot counts there too. NULL in operations that need none.
ALTER TABLE operations ADD COLUMN request_site text, ADD COLUMN request_labels jsonb;
CREATE FUNCTION operation_request_place() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    SELECT m.site, m.labels INTO NEW.request_site, NEW.request_labels FROM machines m WHERE m.machine_id = NEW.target_id;
    RETURN NEW;
END $$;
CREATE TRIGGER operations_request_place BEFORE INSERT ON operations FOR EACH ROW WHEN (NEW.destructive OR NEW.interrupts)
    EXECUTE FUNCTION operation_request_place();
