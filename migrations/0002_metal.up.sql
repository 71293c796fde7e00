-- What it takes to act on metal: what a site serves, what a machine boots, images, BMCs.

ALTER TABLE sites
    -- Repeated baremetal.v1.Segment as protojson.
    ADD COLUMN segments         jsonb       NOT NULL DEFAULT '[]',
    -- Grows with every change that the site's agent must know of, under the row's lock.
    ADD COLUMN revision         bigint      NOT NULL DEFAULT 1,
    -- What the site's agent serves by, and who said so.
    ADD COLUMN applied_revision bigint      NOT NULL DEFAULT 0,
    ADD COLUMN applied_at       timestamptz,
    ADD COLUMN agent_id         text,
    -- Repeated fleet.v1.SegmentObservation as protojson, and boot servers by segment.
    ADD COLUMN observations     jsonb       NOT NULL DEFAULT '[]',
    ADD COLUMN boot_addresses   jsonb       NOT NULL DEFAULT '{}';

ALTER TABLE machines
    ADD COLUMN power_state    text NOT NULL DEFAULT '',
    -- When the state changed last: an observation that says the same moves nothing.
    ADD COLUMN power_state_at timestamptz,
    ADD COLUMN boot_mode      text NOT NULL DEFAULT 'disk' CHECK (boot_mode IN ('installer', 'rescue', 'disk'));

ALTER TABLE agents
    -- The operation that an installer serves, or that made the system of a host agent.
    ADD COLUMN operation_id    text REFERENCES operations,
    ADD COLUMN os_image_digest text NOT NULL DEFAULT '';

ALTER TABLE bootstrap_tokens
    -- Set on the token of a system that a repave has written.
    ADD COLUMN operation_id text REFERENCES operations,
    ADD COLUMN command_id   text REFERENCES commands;
CREATE INDEX bootstrap_tokens_of_command ON bootstrap_tokens (command_id) WHERE command_id IS NOT NULL;

-- What a machine boots from the network. No row means: from disk.
CREATE TABLE boot_assignments (
    machine_id           text PRIMARY KEY REFERENCES machines,
    site                 text        NOT NULL REFERENCES sites,
    mode                 text        NOT NULL CHECK (mode IN ('installer', 'rescue', 'disk')),
    operation_id         text REFERENCES operations,
    -- The capability in boot URLs.
    token                text        NOT NULL,
    -- The site's revision that carries this.
    revision             bigint      NOT NULL,
    updated_at           timestamptz NOT NULL,
    -- The key that was certified under this token, and one that asked after it.
    installer_key_digest bytea,
    installer_agent_id   text REFERENCES agents,
    contender_key_digest bytea,
    contender_at         timestamptz
);
CREATE INDEX boot_assignments_of_site ON boot_assignments (site) WHERE mode <> 'disk';

CREATE TABLE site_leases (
    site       text        NOT NULL REFERENCES sites,
    segment    text        NOT NULL,
    mac        macaddr     NOT NULL,
    address    inet        NOT NULL,
    expires_at timestamptz NOT NULL,
    hostname   text        NOT NULL DEFAULT '',
    PRIMARY KEY (site, segment, mac)
);

-- Machines that asked to boot and are in no inventory.
CREATE TABLE discovered_machines (
    site          text        NOT NULL REFERENCES sites,
    mac           macaddr     NOT NULL,
    segment       text        NOT NULL,
    address       text        NOT NULL DEFAULT '',
    arch          text        NOT NULL DEFAULT '',
    vendor        text        NOT NULL DEFAULT '',
    first_seen_at timestamptz NOT NULL,
    last_seen_at  timestamptz NOT NULL,
    PRIMARY KEY (site, mac)
);

CREATE TABLE images (
    image_ref          text PRIMARY KEY,
    kind               text        NOT NULL CHECK (kind IN ('os', 'installer-kernel', 'installer-initrd', 'installer-uki')),
    arch               text        NOT NULL,
    url                text        NOT NULL DEFAULT '',
    format             text        NOT NULL,
    -- Lower hex. The first names the stored file.
    sha256_file        text        NOT NULL,
    sha256_raw         text        NOT NULL,
    sha256_source      text        NOT NULL DEFAULT '',
    size_bytes         bigint      NOT NULL,
    file_size_bytes    bigint      NOT NULL,
    minimum_disk_bytes bigint      NOT NULL,
    firmware           text[]      NOT NULL DEFAULT '{}',
    created_at         timestamptz NOT NULL
);
CREATE INDEX images_by_file ON images (sha256_file);

CREATE TABLE bmc_credentials (
    credentials_ref text PRIMARY KEY,
    -- User name and password, sealed with the controller's key.
    sealed          bytea       NOT NULL,
    version         bigint      NOT NULL DEFAULT 1,
    updated_at      timestamptz NOT NULL
);

-- A site's document holds its machines, their BMCs and the installers. A site that serves no segment has no document to
-- renew, and its row stays out of the way of registrations.
CREATE FUNCTION renew_site(name text) RETURNS void LANGUAGE sql AS $$
    UPDATE sites SET revision = revision + 1 WHERE site = name AND segments <> '[]'
$$;

CREATE FUNCTION machine_renews_site() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    PERFORM renew_site(NEW.site);
    IF TG_OP = 'UPDATE' AND OLD.site <> NEW.site THEN
        PERFORM renew_site(OLD.site);
    END IF;
    RETURN NULL;
END $$;
CREATE TRIGGER machines_insert_renews_site AFTER INSERT ON machines FOR EACH ROW EXECUTE FUNCTION machine_renews_site();
CREATE TRIGGER machines_update_renews_site AFTER UPDATE OF spec, deleted_at ON machines FOR EACH ROW
    WHEN (OLD.spec IS DISTINCT FROM NEW.spec OR OLD.deleted_at IS DISTINCT FROM NEW.deleted_at)
    EXECUTE FUNCTION machine_renews_site();

CREATE FUNCTION every_site_renewed() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    PERFORM renew_site(site) FROM (SELECT site FROM sites ORDER BY site) s;
    RETURN NULL;
END $$;
CREATE TRIGGER images_renew_sites AFTER INSERT OR UPDATE OR DELETE ON images FOR EACH STATEMENT EXECUTE FUNCTION every_site_renewed();
CREATE TRIGGER credentials_renew_sites AFTER UPDATE ON bmc_credentials FOR EACH STATEMENT EXECUTE FUNCTION every_site_renewed();
