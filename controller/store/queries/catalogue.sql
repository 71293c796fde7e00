-- name: LockBlob :exec
-- Held to the end of the transaction: nobody adds an entry for a blob while somebody else removes its file.
SELECT pg_advisory_xact_lock(hashtextextended('ingot blob ' || @sha256::text, 0));

-- name: GetImage :one
SELECT * FROM images WHERE image_ref = @image_ref;

-- name: HoldImage :one
-- For whoever is about to start work with the image: it is not removed before the transaction has ended.
SELECT * FROM images WHERE image_ref = @image_ref FOR SHARE;

-- name: LockImage :one
SELECT * FROM images WHERE image_ref = @image_ref FOR UPDATE;

-- name: InsertImage :execrows
INSERT INTO images (image_ref, kind, arch, url, format, sha256_file, sha256_raw, sha256_source, size_bytes, file_size_bytes,
                    minimum_disk_bytes, firmware, created_at)
VALUES (@image_ref, @kind, @arch, @url, @format, @sha256_file, @sha256_raw, @sha256_source, @size_bytes, @file_size_bytes,
        @minimum_disk_bytes, @firmware, @now)
ON CONFLICT (image_ref) DO NOTHING;

-- name: DeleteImage :exec
DELETE FROM images WHERE image_ref = @image_ref;

-- name: ListImages :many
SELECT * FROM images
WHERE image_ref > @after_ref AND (@kind::text = '' OR kind = @kind)
ORDER BY image_ref LIMIT @page_size;

-- name: CountImagesOfBlob :one
-- Scripts are files of the same store.
SELECT (SELECT count(*) FROM images WHERE images.sha256_file = @sha256_file)
     + (SELECT count(*) FROM scripts WHERE scripts.sha256 = @sha256_file);

-- name: BlobsNamed :many
SELECT sha256_file FROM images WHERE sha256_file = ANY(@sums::text[])
UNION SELECT sha256 FROM scripts WHERE sha256 = ANY(@sums::text[]);

-- name: RepavesUnderWay :many
-- The image's name is inside the step.
SELECT s.operation_id, s.spec FROM operation_steps s JOIN operations o ON o.operation_id = s.operation_id
WHERE o.phase IN ('PENDING', 'RUNNING') AND s.kind = 'repave';

-- name: MachineWithDefaultImage :one
SELECT machine_id FROM machines
WHERE deleted_at IS NULL AND spec ->> 'default_image_ref' = @image_ref::text ORDER BY machine_id LIMIT 1;

-- name: AnyMachineBootsInstaller :one
SELECT EXISTS (SELECT 1 FROM boot_assignments WHERE mode <> 'disk');

-- name: TouchAllSites :exec
UPDATE sites SET revision = revision + 1;

-- name: TouchSitesOfCredentials :exec
UPDATE sites SET revision = revision + 1
WHERE site IN (SELECT m.site FROM machines m
               WHERE m.deleted_at IS NULL AND m.spec ->> 'bmc_credentials_ref' = @credentials_ref::text);

-- name: PutCredentials :one
INSERT INTO bmc_credentials (credentials_ref, sealed, allowed_endpoints, allow_plain_http, allow_unverified_tls, updated_at)
VALUES (@credentials_ref, @sealed, @allowed_endpoints, @allow_plain_http, @allow_unverified_tls, @now)
ON CONFLICT (credentials_ref) DO UPDATE
SET sealed = excluded.sealed, allowed_endpoints = excluded.allowed_endpoints, allow_plain_http = excluded.allow_plain_http,
    allow_unverified_tls = excluded.allow_unverified_tls, adopted = @adopted, version = bmc_credentials.version + 1,
    updated_at = excluded.updated_at
RETURNING *;

-- name: EndpointsOfCredentials :many
-- The BMCs of the machines that name the credentials.
SELECT machine_id, (spec ->> 'bmc_endpoint')::text AS bmc_endpoint FROM machines
WHERE deleted_at IS NULL AND spec ->> 'bmc_credentials_ref' = @credentials_ref::text AND spec ->> 'bmc_endpoint' <> ''
ORDER BY machine_id;

-- name: BMCOfMachine :one
SELECT site, coalesce(spec ->> 'bmc_endpoint', '')::text AS bmc_endpoint, coalesce(spec ->> 'bmc_credentials_ref', '')::text AS credentials_ref
FROM machines WHERE machine_id = @machine_id AND deleted_at IS NULL;

-- name: PinBMCCertificate :exec
-- The first certificate that a BMC shows. Another one never takes its place here.
INSERT INTO bmc_certificates (site, endpoint, sha256, pinned_at) VALUES (@site, @endpoint, @sha256, @now)
ON CONFLICT (site, endpoint) DO NOTHING;

-- name: OfferBMCCertificate :execrows
UPDATE bmc_certificates SET offered_sha256 = @offered_sha256::text, offered_at = CASE WHEN @offered_sha256 = '' THEN NULL ELSE @now::timestamptz END
WHERE site = @site AND endpoint = @endpoint AND offered_sha256 <> @offered_sha256 AND sha256 <> @offered_sha256;

-- name: LockBMCCertificate :one
SELECT * FROM bmc_certificates WHERE site = @site AND endpoint = @endpoint FOR UPDATE;

-- name: TrustBMCCertificate :one
UPDATE bmc_certificates
SET sha256 = offered_sha256, pinned_at = @now, trusted_by = @trusted_by, offered_sha256 = '', offered_at = NULL
WHERE site = @site AND endpoint = @endpoint
RETURNING *;

-- name: UnparkBMC :one
-- By the clock of the database, and later than before: the site's agent compares.
INSERT INTO bmc_unparked AS u (site, endpoint, unparked_at) VALUES (@site, @endpoint, clock_timestamp())
ON CONFLICT (site, endpoint) DO UPDATE SET unparked_at = greatest(clock_timestamp(), u.unparked_at + interval '1 microsecond')
RETURNING unparked_at;

-- name: TouchSite :exec
UPDATE sites SET revision = revision + 1 WHERE site = @site;

-- name: ListBMCCertificates :many
SELECT sqlc.embed(c),
       coalesce((SELECT array_agg(m.machine_id ORDER BY m.machine_id) FROM (
            SELECT mm.machine_id FROM machines mm
            WHERE mm.site = c.site AND mm.spec ->> 'bmc_endpoint' = c.endpoint AND mm.spec ->> 'bmc_endpoint' <> '' AND mm.deleted_at IS NULL
            ORDER BY mm.machine_id LIMIT 20) m), '{}')::text[] AS machine_ids
FROM bmc_certificates c
WHERE (c.site, c.endpoint) > (@after_site::text, @after_endpoint::text)
  AND (NOT @changed::boolean OR c.offered_sha256 <> '')
  AND (@site::text = '' OR c.site = @site AND c.endpoint = @endpoint)
ORDER BY c.site, c.endpoint LIMIT @page_size;

-- name: DropBMCUnparked :execrows
-- Those of BMCs that no machine has any more, some at a time.
DELETE FROM bmc_unparked WHERE ctid IN (
    SELECT u.ctid FROM bmc_unparked u
    WHERE NOT EXISTS (SELECT 1 FROM machines m WHERE m.site = u.site AND m.spec ->> 'bmc_endpoint' = u.endpoint
                      AND m.spec ->> 'bmc_endpoint' <> '' AND m.deleted_at IS NULL) LIMIT @max_rows);

-- name: DropBMCCertificates :execrows
-- Those that no machine's BMC has any more, some at a time.
DELETE FROM bmc_certificates WHERE ctid IN (
    SELECT c.ctid FROM bmc_certificates c
    WHERE NOT EXISTS (SELECT 1 FROM machines m WHERE m.site = c.site AND m.spec ->> 'bmc_endpoint' = c.endpoint
                      AND m.spec ->> 'bmc_endpoint' <> '' AND m.deleted_at IS NULL) LIMIT @max_rows);

-- name: GetCredentials :one
SELECT * FROM bmc_credentials WHERE credentials_ref = @credentials_ref;

-- name: LockCredentials :one
SELECT * FROM bmc_credentials WHERE credentials_ref = @credentials_ref FOR UPDATE;

-- name: ListCredentials :many
SELECT * FROM bmc_credentials WHERE credentials_ref > @after_ref ORDER BY credentials_ref LIMIT @page_size;

-- name: DeleteCredentials :exec
DELETE FROM bmc_credentials WHERE credentials_ref = @credentials_ref;

-- name: MachineWithCredentials :one
SELECT machine_id FROM machines
WHERE deleted_at IS NULL AND spec ->> 'bmc_credentials_ref' = @credentials_ref::text ORDER BY machine_id LIMIT 1;

-- name: CredentialsRefOfMachine :one
-- Only of a machine of the site.
SELECT coalesce(spec ->> 'bmc_credentials_ref', '')::text AS credentials_ref, coalesce(spec ->> 'bmc_endpoint', '')::text AS bmc_endpoint
FROM machines WHERE machine_id = @machine_id AND site = @site AND deleted_at IS NULL;

-- name: LockSite :one
SELECT * FROM sites WHERE site = @site FOR UPDATE;

-- name: GetSite :one
SELECT * FROM sites WHERE site = @site;

-- name: ListSites :many
SELECT * FROM sites WHERE site > @after_site ORDER BY site LIMIT @page_size;

-- name: SetSegments :exec
UPDATE sites SET segments = @segments, revision = revision + 1, version = version + 1 WHERE site = @site;

-- name: ListSiteLeases :many
SELECT l.site, l.segment, l.mac::text AS mac, host(l.address)::text AS address, l.expires_at, l.hostname,
       coalesce(m.machine_id, '')::text AS machine_id
FROM site_leases l LEFT JOIN machine_macs m ON m.mac = l.mac
WHERE l.site = @site AND (@after_mac::text = '' OR (l.segment, l.mac) > (@after_segment::text, nullif(@after_mac::text, '')::macaddr))
ORDER BY l.segment, l.mac LIMIT @page_size;

-- name: ListDiscovered :many
-- A machine that has been registered since is not among them.
SELECT d.site, d.segment, d.mac::text AS mac, d.address, d.arch, d.vendor, d.first_seen_at, d.last_seen_at
FROM discovered_machines d
WHERE (@site::text = '' OR d.site = @site) AND NOT EXISTS (SELECT 1 FROM machine_macs m WHERE m.mac = d.mac)
  AND (@after_mac::text = '' OR (d.site, d.mac) > (@after_site::text, nullif(@after_mac::text, '')::macaddr))
ORDER BY d.site, d.mac LIMIT @page_size;

-- name: GetBMCPassword :one
SELECT * FROM bmc_passwords WHERE machine_id = @machine_id AND credentials_ref = @credentials_ref;

-- name: LockBMCPassword :one
SELECT * FROM bmc_passwords WHERE machine_id = @machine_id AND credentials_ref = @credentials_ref FOR UPDATE;

-- name: PendBMCPassword :one
-- One that is pending stays: the BMC may have taken it.
INSERT INTO bmc_passwords AS p (machine_id, credentials_ref, pending, pending_version, pending_command, changed_at)
VALUES (@machine_id, @credentials_ref, @pending, nextval('bmc_password_versions'), @command_id::text, @now)
ON CONFLICT (machine_id, credentials_ref) DO UPDATE
SET pending_version = CASE WHEN p.pending IS NULL THEN excluded.pending_version ELSE p.pending_version END,
    pending = coalesce(p.pending, excluded.pending), pending_command = excluded.pending_command, changed_at = excluded.changed_at
RETURNING *;

-- name: AcceptBMCPassword :one
UPDATE bmc_passwords
SET sealed = pending, version = pending_version, pending = NULL, pending_version = 0, pending_command = '',
    settled_command = @command_id, changed_at = @now
WHERE machine_id = @machine_id AND pending_command = @command_id AND pending_version = @version AND pending IS NOT NULL
RETURNING *;

-- name: DropOtherBMCPasswords :exec
-- A BMC has one password: those that stood for other credentials are no more.
DELETE FROM bmc_passwords WHERE machine_id = @machine_id AND credentials_ref <> @credentials_ref;

-- name: ForgetPendingBMCPassword :execrows
UPDATE bmc_passwords SET pending = NULL, pending_version = 0, pending_command = '', changed_at = @now
WHERE machine_id = @machine_id AND pending_command = @command_id AND pending_version = @version;

-- name: OwnPasswordsOf :many
-- Of the machines that name the credentials.
SELECT p.machine_id, (p.sealed IS NOT NULL)::boolean AS own, (p.pending IS NOT NULL)::boolean AS open
FROM bmc_passwords p JOIN machines m ON m.machine_id = p.machine_id AND m.deleted_at IS NULL
WHERE p.credentials_ref = @credentials_ref::text AND m.spec ->> 'bmc_credentials_ref' = @credentials_ref
ORDER BY p.machine_id;

-- name: NeighboursAtBMC :many
-- Other machines with the same credentials whose endpoint holds the host; the caller compares the hosts themselves.
SELECT machine_id, (spec ->> 'bmc_endpoint')::text AS bmc_endpoint FROM machines
WHERE deleted_at IS NULL AND spec ->> 'bmc_credentials_ref' = @credentials_ref::text AND spec ->> 'bmc_endpoint' <> ''
  AND machine_id <> @machine_id AND strpos(lower(spec ->> 'bmc_endpoint'), lower(@host::text)) > 0
ORDER BY machine_id LIMIT 1000;

-- name: SetHardwareHealth :execrows
-- An older word than the one that is stored, or one of another BMC than the machine's, is not taken.
INSERT INTO hardware_health AS h (machine_id, endpoint, read_at, document)
SELECT m.machine_id, @endpoint, @read_at, @document::jsonb FROM machines m
WHERE m.machine_id = @machine_id AND m.spec ->> 'bmc_endpoint' = @endpoint
ON CONFLICT (machine_id) DO UPDATE SET endpoint = excluded.endpoint, read_at = excluded.read_at, document = excluded.document
WHERE h.read_at < excluded.read_at OR h.endpoint <> excluded.endpoint;

-- name: HardwareHealth :one
-- What was read last of the BMC that the machine has now, and what its light is to be.
SELECT coalesce(m.spec ->> 'bmc_endpoint', '')::text AS bmc_endpoint, h.document, l.lit, l.ordered_by, l.ordered_at
FROM machines m LEFT JOIN hardware_health h ON h.machine_id = m.machine_id AND h.endpoint = m.spec ->> 'bmc_endpoint'
LEFT JOIN identify_lights l ON l.machine_id = m.machine_id
WHERE m.machine_id = @machine_id;

-- name: SetIdentifyLight :exec
INSERT INTO identify_lights (machine_id, lit, ordered_by, ordered_at) VALUES (@machine_id, @lit, @ordered_by, @now)
ON CONFLICT (machine_id) DO UPDATE SET lit = excluded.lit, ordered_by = excluded.ordered_by, ordered_at = excluded.ordered_at;
