-- What machines boot from the network, and what their sites serve.

-- name: BootOf :one
-- No row is a machine that never had an assignment: it boots from disk.
SELECT b.* FROM boot_assignments b WHERE b.machine_id = @machine_id;

-- name: BootWorlds :many
-- All that decisions may know of what machines boot from the network. No assignment means its disk.
SELECT m.machine_id, coalesce(b.mode, '')::text AS mode, b.operation_id, coalesce(b.revision, 0)::bigint AS revision, b.installer_agent_id,
       coalesce(i.identity_level, '')::text AS identity_level, coalesce(i.identity_trust, '')::text AS identity_trust,
       coalesce(p.said, '{}')::jsonb AS phoned_home,
       coalesce(s.applied_revision, 0)::bigint AS applied, coalesce(jsonb_array_length(s.segments), 0)::integer AS segments,
       EXISTS (SELECT 1 FROM images i JOIN images j ON j.arch = i.arch
               WHERE i.kind = 'installer-kernel' AND j.kind = 'installer-initrd')::boolean AS ready,
       EXISTS (SELECT 1 FROM agents a JOIN agent_certs c ON c.agent_id = a.agent_id
               WHERE a.machine_id = m.machine_id AND a.role = 'installer' AND c.revoked_at IS NULL)::boolean AS installers
FROM machines m LEFT JOIN boot_assignments b ON b.machine_id = m.machine_id LEFT JOIN sites s ON s.site = m.site
     LEFT JOIN phone_homes p ON p.operation_id = m.current_operation_id
     LEFT JOIN LATERAL (SELECT a.identity_level, a.identity_trust FROM agents a
                        WHERE a.machine_id = m.machine_id AND a.role = 'installer' AND a.operation_id = m.current_operation_id
                        ORDER BY a.created_at DESC LIMIT 1) i ON true
WHERE m.machine_id = ANY(@machine_ids::text[]);

-- name: HasInstaller :one
SELECT EXISTS (SELECT 1 FROM images i JOIN images j ON j.arch = i.arch
               WHERE i.kind = 'installer-kernel' AND j.kind = 'installer-initrd') AS ready;

-- name: BumpSite :one
-- Under the row's lock, so that whoever reads a revision sees every assignment up to it.
UPDATE sites SET revision = revision + 1 WHERE site = @site RETURNING revision;

-- name: PutAssignment :exec
INSERT INTO boot_assignments (machine_id, site, mode, operation_id, token, revision, updated_at)
VALUES (@machine_id, @site, @mode, @operation_id, @token, @revision, @now)
ON CONFLICT (machine_id) DO UPDATE SET site = excluded.site, mode = excluded.mode, operation_id = excluded.operation_id,
    token = excluded.token, revision = excluded.revision, updated_at = excluded.updated_at, installer_key_digest = NULL,
    installer_agent_id = NULL, contender_key_digest = NULL, contender_at = NULL, impostor_reason = '', impostor_message = '',
    impostor_at = NULL;

-- name: SetBootMode :exec
UPDATE machines SET boot_mode = @boot_mode WHERE machine_id = @machine_id;

-- name: SetMachineBoot :exec
UPDATE machines SET boot_id = @boot_id WHERE machine_id = @machine_id;

-- name: LockAssignment :one
SELECT * FROM boot_assignments WHERE machine_id = @machine_id FOR UPDATE;

-- name: SetInstallerKey :exec
UPDATE boot_assignments SET installer_key_digest = @key_digest, installer_agent_id = @agent_id, contender_key_digest = NULL,
    contender_at = NULL
WHERE machine_id = @machine_id;

-- name: SetContender :exec
UPDATE boot_assignments SET contender_key_digest = @key_digest, contender_at = @now WHERE machine_id = @machine_id;

-- name: SetImpostor :exec
UPDATE boot_assignments SET impostor_reason = @reason, impostor_message = @message, impostor_at = @now WHERE machine_id = @machine_id;

-- name: RequiredIdentity :one
-- What the machine's site and its group ask for; 'tpm' is the highest.
SELECT coalesce((SELECT s.identity_level FROM sites s WHERE s.site = m.site), '')::text AS by_site,
       coalesce((SELECT g.identity_level FROM node_groups g WHERE g.node_group = m.spec ->> 'group'), '')::text AS by_group
FROM machines m WHERE m.machine_id = @machine_id;

-- name: MachineOfTPMKey :one
SELECT machine_id FROM machines WHERE tpm_key_digest = @digest;

-- name: SetMachineIdentity :exec
-- The key is kept once it is recorded.
UPDATE machines SET identity_level = @level, tpm_key_digest = coalesce(tpm_key_digest, sqlc.narg(digest)),
    tpm_key_trust = CASE WHEN sqlc.narg(digest)::bytea IS NULL OR @trust::text = '' THEN tpm_key_trust ELSE @trust END,
    tpm_key_at = CASE WHEN sqlc.narg(digest)::bytea IS NULL THEN tpm_key_at ELSE coalesce(tpm_key_at, @now) END
WHERE machine_id = @machine_id;

-- name: ForgetTPMKey :execrows
UPDATE machines SET tpm_key_digest = NULL, tpm_key_trust = '', tpm_key_at = NULL, identity_level = ''
WHERE machine_id = @machine_id AND tpm_key_digest IS NOT NULL;

-- name: RequireIdentityOfSite :execrows
UPDATE sites SET identity_level = @level WHERE site = @site;

-- name: RequireIdentityOfGroup :exec
INSERT INTO node_groups (node_group, identity_level, updated_at) VALUES (@node_group, @level, @now)
ON CONFLICT (node_group) DO UPDATE SET identity_level = excluded.identity_level, updated_at = excluded.updated_at;

-- name: LastSignOfLife :one
-- No row for an agent whose session has ended.
SELECT last_heartbeat_at FROM agent_sessions WHERE agent_id = @agent_id AND ended_at IS NULL;

-- name: RevokeHostCerts :many
-- Of every system that the machine has run so far, but for those that an operation has made.
UPDATE agent_certs c SET revoked_at = @now
FROM agents a
WHERE a.agent_id = c.agent_id AND a.machine_id = @machine_id AND a.role = 'host' AND c.revoked_at IS NULL
  AND a.operation_id IS DISTINCT FROM @operation_id
RETURNING c.fingerprint;

-- name: RevokeEndedInstallers :many
-- The certificates of a machine's installers whose operations have ended. The rescue system of an assignment that stands has still to
-- report.
UPDATE agent_certs c SET revoked_at = @now
FROM agents a JOIN operations o ON o.operation_id = a.operation_id
WHERE a.agent_id = c.agent_id AND a.machine_id = @machine_id AND a.role = 'installer' AND o.phase NOT IN ('PENDING', 'RUNNING')
  AND c.revoked_at IS NULL
  AND NOT EXISTS (SELECT 1 FROM boot_assignments b
                  WHERE b.machine_id = a.machine_id AND b.installer_agent_id = a.agent_id AND b.mode = 'rescue')
RETURNING c.fingerprint;

-- name: InstallerStands :one
-- Reports whether an installer still has what it was certified for: its operation, or the rescue assignment that this has left, on a
-- machine without other work.
SELECT EXISTS (
    SELECT 1 FROM agents a JOIN machines m ON m.machine_id = a.machine_id JOIN operations o ON o.operation_id = a.operation_id
    LEFT JOIN boot_assignments b ON b.machine_id = a.machine_id AND b.installer_agent_id = a.agent_id
    WHERE a.agent_id = @agent_id AND a.role = 'installer'
      AND (o.phase IN ('PENDING', 'RUNNING') OR b.mode = 'rescue' AND m.current_operation_id IS NULL)
      AND EXISTS (SELECT 1 FROM agent_certs c WHERE c.agent_id = a.agent_id AND c.revoked_at IS NULL));

-- name: OperationLimit :one
-- The phase of an operation, and the time that its steps may take with all their retries.
SELECT o.phase, (SELECT coalesce(sum(s.timeout_ms * (s.max_retries + 1)), 0) FROM operation_steps s
                 WHERE s.operation_id = o.operation_id)::bigint AS limit_ms
FROM operations o WHERE o.operation_id = @operation_id;

-- name: RescuesToEnd :many
-- The machines whose rescue assignment has done its work: its system has reported once. Where nothing but its place on the network
-- proves that system, another may still contest it for a while. Other work of the machine ends both at once.
SELECT b.machine_id
FROM boot_assignments b JOIN machines m ON m.machine_id = b.machine_id JOIN agents a ON a.agent_id = b.installer_agent_id
LEFT JOIN operations o ON o.operation_id = b.operation_id
WHERE b.mode = 'rescue' AND coalesce(o.phase, '') NOT IN ('PENDING', 'RUNNING')
  AND (m.current_operation_id IS NOT NULL OR a.created_at <= @claimed_before::timestamptz
       OR a.identity_level <> 'network'
          AND EXISTS (SELECT 1 FROM agent_states s WHERE s.agent_id = a.agent_id AND s.last_event_seq > 0))
ORDER BY b.machine_id LIMIT 1000;

-- name: InstallerImages :many
SELECT image_ref, arch, kind, sha256_file FROM images WHERE kind <> 'os' ORDER BY created_at, image_ref;

-- name: ImageByRef :one
SELECT * FROM images WHERE image_ref = @image_ref;

-- name: FilesOfImages :many
SELECT image_ref, sha256_file FROM images WHERE image_ref = ANY(@image_refs::text[]) AND kind = 'os';

-- name: SiteRow :one
SELECT * FROM sites WHERE site = @site;

-- name: SiteRevision :one
SELECT revision FROM sites WHERE site = @site;

-- name: AssignmentsOfSite :many
-- With the repaves of the operation, whose images are fetched ahead and served.
SELECT b.machine_id, b.mode, coalesce(b.operation_id, '')::text AS operation_id, b.token,
       coalesce((SELECT array_agg(mm.mac::text ORDER BY mm.mac) FROM machine_macs mm WHERE mm.machine_id = b.machine_id), '{}')::text[] AS macs,
       coalesce((SELECT array_agg(t.spec ORDER BY t.idx) FROM operation_steps t WHERE t.operation_id = b.operation_id AND t.kind IN ('repave', 'erase')), '{}')::bytea[] AS installs,
       coalesce((SELECT m.spec ->> 'install_address' FROM machines m WHERE m.machine_id = b.machine_id), '')::text AS install_address
FROM boot_assignments b
WHERE b.site = @site AND b.mode <> 'disk'
ORDER BY b.machine_id;

-- name: InstallerSteps :many
-- The steps of an operation that the installer does.
SELECT t.spec FROM operation_steps t WHERE t.operation_id = @operation_id AND t.kind IN ('repave', 'erase') ORDER BY t.idx;

-- name: MachinesOfSite :many
-- Known machines and their BMCs. Those that boot from disk are known too: nothing else is to be made of them.
SELECT m.machine_id, coalesce(m.spec ->> 'bmc_endpoint', '')::text AS bmc_endpoint,
       coalesce(m.spec ->> 'bmc_credentials_ref', '')::text AS credentials_ref,
       (coalesce((SELECT c.version FROM bmc_credentials c WHERE c.credentials_ref = m.spec ->> 'bmc_credentials_ref'), 0)
        + coalesce((SELECT p.version << 32 FROM bmc_passwords p
                    WHERE p.machine_id = m.machine_id AND p.credentials_ref = m.spec ->> 'bmc_credentials_ref'), 0))::bigint AS credentials_version,
       coalesce((SELECT c.sha256 FROM bmc_certificates c WHERE c.site = m.site AND c.endpoint = m.spec ->> 'bmc_endpoint'), '')::text AS bmc_certificate,
       u.unparked_at,
       coalesce((SELECT array_agg(mm.mac::text ORDER BY mm.mac) FROM machine_macs mm WHERE mm.machine_id = m.machine_id), '{}')::text[] AS macs,
       coalesce(nullif(inv.system ->> 'uuid', ''), r.system_uuid, '')::text AS system_uuid,
       coalesce(nullif(inv.system ->> 'serial', ''), r.serial_number, '')::text AS serial_number,
       coalesce(inv.firmware_is, '')::text AS firmware_is, m.agentless, m.probe_ip,
       (CASE WHEN l.lit IS NULL THEN '' WHEN l.lit THEN 'on' ELSE 'off' END)::text AS identify_light
FROM machines m LEFT JOIN identify_lights l ON l.machine_id = m.machine_id LEFT JOIN bmc_unparked u ON u.site = m.site AND u.endpoint = m.spec ->> 'bmc_endpoint'
LEFT JOIN node_reports r ON r.machine_id = m.machine_id
LEFT JOIN LATERAL (SELECT i.document -> 'system' AS system, i.document #>> '{os,firmware_is}' AS firmware_is FROM inventories i
                   WHERE i.machine_id = m.machine_id ORDER BY i.reported_at DESC LIMIT 1) inv ON m.spec ->> 'bmc_endpoint' <> ''
WHERE m.site = @site AND m.deleted_at IS NULL AND m.provider IN ('', 'agent')
ORDER BY m.machine_id;

-- name: KnownHardware :many
-- What tells the machines of a site, and those anywhere that have one of the MAC addresses.
SELECT m.machine_id, m.site, coalesce(m.spec ->> 'bmc_endpoint', '')::text AS bmc_endpoint,
       coalesce((SELECT array_agg(mm.mac::text ORDER BY mm.mac) FROM machine_macs mm WHERE mm.machine_id = m.machine_id), '{}')::text[] AS macs,
       coalesce(nullif(inv.system ->> 'uuid', ''), r.system_uuid, '')::text AS system_uuid,
       coalesce(m.spec ->> 'serial', '')::text AS spec_serial,
       coalesce(nullif(inv.system ->> 'serial', ''), r.serial_number, '')::text AS serial_number
FROM machines m LEFT JOIN node_reports r ON r.machine_id = m.machine_id
LEFT JOIN LATERAL (SELECT i.document -> 'system' AS system FROM inventories i
                   WHERE i.machine_id = m.machine_id ORDER BY i.reported_at DESC LIMIT 1) inv ON true
WHERE m.deleted_at IS NULL
  AND (m.site = @site OR m.machine_id IN (SELECT mm.machine_id FROM machine_macs mm WHERE mm.mac = ANY(CAST(@macs::text[] AS macaddr[]))))
ORDER BY m.machine_id;

-- name: SiteApplied :execrows
UPDATE sites SET applied_revision = @applied_revision, applied_at = @now, agent_id = @agent_id, boot_addresses = @boot_addresses
WHERE site = @site AND (applied_revision <> @applied_revision OR agent_id IS DISTINCT FROM @agent_id
    OR boot_addresses <> @boot_addresses);

-- name: SiteObserved :exec
UPDATE sites SET observations = @observations WHERE site = @site AND observations <> @observations;

-- name: OperationsWaitingForSite :many
SELECT o.operation_id FROM operations o JOIN machines m ON m.machine_id = o.target_id
WHERE o.phase = 'RUNNING' AND o.wait_reason = 'WAITING_FOR_SITE' AND m.site = @site
ORDER BY o.created_at;

-- name: DropLeases :exec
DELETE FROM site_leases WHERE site = @site;

-- name: InsertLeases :exec
INSERT INTO site_leases (site, segment, mac, address, expires_at, hostname)
SELECT @site, unnest(@segments::text[]), unnest(@macs::text[])::macaddr, unnest(@addresses::text[])::inet,
       unnest(@expires::timestamptz[]), unnest(@hostnames::text[])
ON CONFLICT (site, segment, mac) DO UPDATE SET address = excluded.address, expires_at = excluded.expires_at,
    hostname = excluded.hostname;

-- name: SegmentOfMACs :one
-- The segment on which one of the machine's interfaces was seen last.
SELECT l.segment FROM site_leases l JOIN machine_macs mm ON mm.mac = l.mac
WHERE l.site = @site AND mm.machine_id = @machine_id ORDER BY l.expires_at DESC LIMIT 1;

-- name: SawUnknown :exec
INSERT INTO discovered_machines (site, mac, segment, address, arch, vendor, first_seen_at, last_seen_at)
SELECT @site, CAST(@mac::text AS macaddr), @segment, @address, @arch, @vendor, @now, @now
WHERE NOT EXISTS (SELECT 1 FROM machine_macs mm WHERE mm.mac = CAST(@mac::text AS macaddr))
ON CONFLICT (site, mac) DO UPDATE SET segment = excluded.segment, address = excluded.address, arch = excluded.arch,
    vendor = excluded.vendor, last_seen_at = excluded.last_seen_at;

-- name: SetPowerState :exec
UPDATE machines SET power_state = @power_state, power_state_at = @now, last_power_state = ''
WHERE machine_id = @machine_id AND site = @site AND (power_state <> @power_state OR last_power_state <> '');

-- name: RevokeTokensOfCommand :exec
UPDATE bootstrap_tokens SET revoked_at = @now WHERE command_id = @command_id AND used_at IS NULL AND revoked_at IS NULL;

-- name: OperationOfSite :one
SELECT o.operation_id FROM operations o JOIN machines m ON m.machine_id = o.target_id
WHERE o.operation_id = @operation_id AND m.site = @site;

-- name: PutPhoneHome :exec
-- A later attempt of the operation takes the place of the one before.
INSERT INTO phone_homes (operation_id, machine_id, command_id, secret_sha256, issued_at)
VALUES (@operation_id, @machine_id, @command_id, @secret_sha256, @now)
ON CONFLICT (operation_id) DO UPDATE SET command_id = excluded.command_id, secret_sha256 = excluded.secret_sha256,
    said = '{}', issued_at = excluded.issued_at;

-- name: PhoneHomesOfSite :many
SELECT p.machine_id, p.operation_id, p.secret_sha256 FROM phone_homes p JOIN machines m ON m.machine_id = p.machine_id
WHERE m.site = @site AND m.current_operation_id = p.operation_id
ORDER BY p.operation_id;

-- name: PhoneHomeBySecret :one
-- Under the row's lock, for an operation that is under way on a machine of the site.
SELECT p.operation_id, p.machine_id, p.said FROM phone_homes p JOIN machines m ON m.machine_id = p.machine_id
WHERE p.secret_sha256 = @secret_sha256 AND m.site = @site AND m.current_operation_id = p.operation_id
FOR UPDATE OF p;

-- name: SaidAtHome :exec
UPDATE phone_homes SET said = @said WHERE operation_id = @operation_id;

-- name: DropPhoneHome :execrows
DELETE FROM phone_homes WHERE operation_id = @operation_id;

-- name: SetAgentless :exec
-- What was known of the system before goes with it.
UPDATE machines SET agentless = @agentless, probe_ip = '',
    agent_id = CASE WHEN @agentless::boolean THEN NULL ELSE agent_id END,
    boot_id = CASE WHEN @agentless::boolean THEN '' ELSE boot_id END
WHERE machine_id = @machine_id AND (agentless OR @agentless::boolean);

-- name: SetProbeAddress :exec
UPDATE machines SET probe_ip = @address WHERE machine_id = @machine_id AND agentless;

-- Sites whose agents are silent, and the conditions that only those agents observe.

-- name: SitesToJudge :many
-- Sites whose silence has begun or has ended, and is not stored yet. An agent counts as silent some time after its session has ended,
-- and when it has missed its heartbeats; in both cases only the time counts in which it could be heard. observed_by is the agent that was
-- heard last.
SELECT s.site, h.silent::boolean AS silent, h.heard_at::timestamptz AS heard_at, h.observed_by::text AS observed_by
FROM sites s
CROSS JOIN LATERAL (
    SELECT bool_and(x.silent_from < @silent_before::timestamptz
                    OR coalesce(x.ended_at, 'infinity') < @ended_before::timestamptz AND x.silent_from < @ended_before) AS silent,
           bool_or(x.ended_at IS NULL AND x.last_heartbeat_at >= @heard_since::timestamptz) AS heard,
           max(x.last_heartbeat_at) AS heard_at,
           (array_agg(x.agent_id ORDER BY x.last_heartbeat_at DESC))[1] AS observed_by
    FROM agents a JOIN agent_silence x ON x.agent_id = a.agent_id
    WHERE a.role = 'site' AND a.site = s.site) h
WHERE CASE WHEN s.silent_since IS NULL THEN h.silent ELSE h.heard END;

-- name: SilentSites :many
SELECT site, silent_since FROM sites WHERE silent_since IS NOT NULL ORDER BY site;

-- name: BeginSiteSilence :execrows
UPDATE sites SET silent_since = @heard_at::timestamptz WHERE site = @site AND silent_since IS NULL;

-- name: EndSiteSilence :execrows
UPDATE sites SET silent_since = NULL WHERE site = @site AND silent_since IS NOT NULL;

-- name: MuteMachineEvents :exec
-- Until the transaction ends, changes of machines add no events for webhooks: the site has an event of its own.
SELECT set_config('ingot.site_event', 'on', true);

-- name: LockUnwitnessed :many
-- The machines of a site that no agent of their own observes now, as far as a condition or the power state of theirs is not unknown yet.
SELECT m.machine_id FROM machines m
WHERE m.site = @site AND m.deleted_at IS NULL
  AND NOT EXISTS (SELECT 1 FROM agent_silence x
                  WHERE x.agent_id = m.agent_id AND x.ended_at IS NULL AND x.silent_from >= @silent_before)
  AND (m.power_state IN ('on', 'off') OR EXISTS (
      SELECT 1 FROM machine_conditions c
      WHERE c.machine_id = m.machine_id AND c.known
        AND (c.type = ANY(@aging::text[]) OR c.type = ANY(@reached::text[]) AND (m.agent_id IS NULL OR m.agentless))))
ORDER BY m.machine_id FOR UPDATE OF m;

-- name: SilenceConditions :exec
-- The conditions of aging become unknown; of those in faults only known changes. Those of reached do so on machines without an agent of
-- their own: any other machine's agent is their witness.
UPDATE machine_conditions c
SET known = false, observed_at = @heard_at::timestamptz, observed_by = @observed_by::text,
    last_known = jsonb_build_object('status', c.status, 'reason', c.reason, 'message', c.message, 'last_transition', c.last_transition),
    status = c.status AND c.type = ANY(@faults::text[]),
    reason = CASE WHEN c.type = ANY(@faults::text[]) THEN c.reason ELSE @reason::text END,
    message = CASE WHEN c.type = ANY(@faults::text[]) THEN c.message ELSE @message::text END,
    last_transition = CASE WHEN c.status AND NOT c.type = ANY(@faults::text[]) THEN @now ELSE c.last_transition END
FROM machines m
WHERE m.machine_id = ANY(@machine_ids::text[]) AND c.machine_id = m.machine_id AND c.known
  AND (c.type = ANY(@aging::text[]) OR c.type = ANY(@reached::text[]) AND (m.agent_id IS NULL OR m.agentless));

-- name: SilencePower :exec
UPDATE machines SET last_power_state = power_state, power_state = 'unknown'
WHERE machine_id = ANY(@machine_ids::text[]) AND power_state IN ('on', 'off');

-- name: LockUnprobed :many
-- The machines of a site that nothing probes, and of which a condition is unknown that the session of the site's agent attests.
SELECT m.machine_id FROM machines m
WHERE m.site = @site AND NOT m.agentless AND EXISTS (
    SELECT 1 FROM machine_conditions c WHERE c.machine_id = m.machine_id AND NOT c.known AND c.type = ANY(@reached::text[]))
ORDER BY m.machine_id FOR UPDATE OF m;

-- name: RestoreConditions :exec
UPDATE machine_conditions c
SET known = true, observed_at = NULL, observed_by = '', last_known = NULL, status = (c.last_known ->> 'status')::boolean,
    reason = c.last_known ->> 'reason', message = c.last_known ->> 'message',
    last_transition = (c.last_known ->> 'last_transition')::timestamptz
WHERE c.machine_id = ANY(@machine_ids::text[]) AND c.type = ANY(@types::text[]) AND NOT c.known;

-- name: LockConfirmed :many
-- The machines of which an observation reports again what was known before the silence. Observations are arrays in one order.
SELECT m.machine_id FROM machines m
WHERE m.machine_id IN (
    SELECT c.machine_id
    FROM (SELECT unnest(@machine_ids::text[]) AS machine_id, unnest(@types::text[]) AS type, unnest(@statuses::boolean[]) AS status) o
    JOIN machine_conditions c ON c.machine_id = o.machine_id AND c.type = o.type AND NOT c.known
    WHERE (c.last_known ->> 'status')::boolean = o.status)
  AND m.site = @site
ORDER BY m.machine_id FOR UPDATE OF m;

-- name: ConfirmConditions :exec
-- As RestoreConditions, of those that an observation reports again.
UPDATE machine_conditions c
SET known = true, observed_at = NULL, observed_by = '', last_known = NULL, status = o.status,
    reason = c.last_known ->> 'reason', message = c.last_known ->> 'message',
    last_transition = (c.last_known ->> 'last_transition')::timestamptz
FROM (SELECT unnest(@observed_ids::text[]) AS machine_id, unnest(@types::text[]) AS type, unnest(@statuses::boolean[]) AS status) o
WHERE c.machine_id = ANY(@machine_ids::text[]) AND c.machine_id = o.machine_id AND c.type = o.type AND NOT c.known
  AND (c.last_known ->> 'status')::boolean = o.status;

-- name: ConfirmPower :exec
UPDATE machines m SET power_state = o.power_state, last_power_state = ''
FROM (SELECT unnest(@observed_ids::text[]) AS machine_id, unnest(@power_states::text[]) AS power_state) o
WHERE m.machine_id = ANY(@machine_ids::text[]) AND m.machine_id = o.machine_id AND m.last_power_state = o.power_state
  AND m.last_power_state <> '';

-- name: AgeFaults :exec
-- The faults that a silent agent has reported of its machine keep their value, and are not known.
UPDATE machine_conditions
SET known = false, observed_at = coalesce((SELECT x.last_heartbeat_at FROM agent_sessions x WHERE x.agent_id = @agent_id), @now::timestamptz),
    observed_by = @agent_id::text,
    last_known = jsonb_build_object('status', status, 'reason', reason, 'message', message, 'last_transition', last_transition)
WHERE machine_id = @machine_id AND type = ANY(@types::text[]) AND known;

-- name: NoteSite :exec
INSERT INTO webhook_sites (site, kind) SELECT @site, @kind WHERE EXISTS (SELECT 1 FROM webhooks WHERE state = 'active');

-- name: TakeSiteChanges :many
DELETE FROM webhook_sites
WHERE change_id IN (SELECT o.change_id FROM webhook_sites o ORDER BY o.change_id LIMIT @page_size FOR UPDATE SKIP LOCKED)
RETURNING *;

-- name: EmptySiteOutbox :exec
DELETE FROM webhook_sites;

-- name: MachinesOfSiteAfter :many
SELECT * FROM machines WHERE site = @site AND deleted_at IS NULL AND machine_id > @after_id ORDER BY machine_id LIMIT @page_size;

-- name: WitnessesOfSites :many
-- Of each site the agent that was heard last, and when.
SELECT DISTINCT ON (a.site) a.site, a.agent_id, x.last_heartbeat_at
FROM agents a JOIN agent_sessions x ON x.agent_id = a.agent_id
WHERE a.role = 'site' AND a.site = ANY(@sites::text[])
ORDER BY a.site, x.last_heartbeat_at DESC;

-- name: AnythingUnknown :one
SELECT EXISTS (SELECT 1 FROM machine_conditions WHERE NOT known AND NOT status);
