-- The MAAS regions that drive machines of provider maas, and what they say of them.
CREATE TABLE maas_regions (
    region_ref      text PRIMARY KEY,
    endpoint        text        NOT NULL,
    -- The API key, sealed with the controller's key.
    sealed          bytea       NOT NULL,
    ca_pem          bytea       NOT NULL,
    user_data       text        NOT NULL,
    retain_machines boolean     NOT NULL,
    version         bigint      NOT NULL DEFAULT 1,
    updated_at      timestamptz NOT NULL
);
CREATE TRIGGER maas_regions_renew_sites AFTER INSERT OR UPDATE OR DELETE ON maas_regions
    FOR EACH STATEMENT EXECUTE FUNCTION every_site_renewed();

-- What a provider says of a machine: observed, and never owned. A row changes only when what is said does.
CREATE TABLE provider_observations (
    machine_id     text PRIMARY KEY REFERENCES machines,
    provider       text        NOT NULL,
    state          text        NOT NULL,
    status         text        NOT NULL,
    system_id      text        NOT NULL,
    power_state    text        NOT NULL,
    deployed       text        NOT NULL,
    drift          text        NOT NULL,
    reason         text        NOT NULL,
    message        text        NOT NULL,
    changed_at     timestamptz NOT NULL
);
CREATE TRIGGER provider_observations_changed BEFORE INSERT OR UPDATE OR DELETE ON provider_observations
    FOR EACH ROW EXECUTE FUNCTION machine_child_changed();

-- A site's document has the machines whose provider is to be looked at, too.
CREATE OR REPLACE FUNCTION renew_site(name text) RETURNS void LANGUAGE sql AS $$
    UPDATE sites SET revision = revision + 1
    WHERE site = name AND (segments <> '[]' OR EXISTS (SELECT 1 FROM machines m WHERE m.site = name AND m.provider = 'maas'))
$$;
