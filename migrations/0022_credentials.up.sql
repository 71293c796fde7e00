-- A BMC credential goes only to the endpoints that an admin has made it for.
ALTER TABLE bmc_credentials
    -- Hosts, host:port, or networks in CIDR form.
    ADD COLUMN allowed_endpoints    text[]  NOT NULL DEFAULT '{}',
    ADD COLUMN allow_plain_http     boolean NOT NULL DEFAULT false,
    ADD COLUMN allow_unverified_tls boolean NOT NULL DEFAULT false,
    -- Filled in below, and not confirmed by an admin since.
    ADD COLUMN adopted              boolean NOT NULL DEFAULT false;

-- What is in use stays allowed, without its scheme and the slash that may end it.
UPDATE bmc_credentials c SET allowed_endpoints = u.endpoints, allow_plain_http = u.plain, adopted = true, version = c.version + 1
FROM (SELECT spec ->> 'bmc_credentials_ref' AS ref,
             array_agg(DISTINCT lower(rtrim(regexp_replace(spec ->> 'bmc_endpoint', '^[a-z+]+://', ''), '/'))) AS endpoints,
             bool_or(starts_with(spec ->> 'bmc_endpoint', 'redfish+http://')) AS plain
      FROM machines
      WHERE deleted_at IS NULL AND coalesce(spec ->> 'bmc_endpoint', '') <> '' AND coalesce(spec ->> 'bmc_credentials_ref', '') <> ''
      GROUP BY 1) u
WHERE u.ref = c.credentials_ref;

-- The certificates that BMCs have shown to their site's agent. One that changes waits for an admin.
CREATE TABLE bmc_certificates (
    site           text        NOT NULL,
    endpoint       text        NOT NULL,
    sha256         text        NOT NULL DEFAULT '',
    pinned_at      timestamptz,
    trusted_by     text        NOT NULL DEFAULT '',
    offered_sha256 text        NOT NULL DEFAULT '',
    offered_at     timestamptz,
    PRIMARY KEY (site, endpoint)
);
CREATE INDEX bmc_certificates_changed ON bmc_certificates (site, endpoint) WHERE offered_sha256 <> '';
CREATE INDEX machines_by_bmc ON machines (site, (spec ->> 'bmc_endpoint')) WHERE deleted_at IS NULL AND spec ->> 'bmc_endpoint' <> '';
CREATE INDEX machines_by_bmc_credentials ON machines ((spec ->> 'bmc_credentials_ref')) WHERE deleted_at IS NULL AND spec ->> 'bmc_credentials_ref' <> '';
