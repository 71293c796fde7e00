-- name: InsertToken :exec
INSERT INTO bootstrap_tokens (token_id, secret_hash, role, machine_id, site, bound_region, bound_provider, bound_mac,
                              bound_serial, created_at, expires_at, operation_id, command_id, request_id, request_body)
VALUES (@token_id, @secret_hash, @role, @machine_id, @site, @bound_region, @bound_provider,
        CAST(sqlc.narg(bound_mac)::text AS macaddr), @bound_serial, @created_at, @expires_at, @operation_id, @command_id, @request_id,
        coalesce(@request_body::jsonb, '{}'));

-- name: TokenOfRequest :one
SELECT token_id, request_body FROM bootstrap_tokens
WHERE coalesce(machine_id, '') = @machine_id::text AND site = @site AND request_id = @request_id::text AND request_id <> '';

-- name: GetToken :one
SELECT token_id, secret_hash, role, machine_id, site, bound_region, bound_provider, coalesce(bound_mac::text, '')::text AS bound_mac,
       bound_serial, created_at, expires_at, used_at, used_public_key_digest, used_fingerprint, used_by_agent_id, revoked_at
FROM bootstrap_tokens WHERE token_id = @token_id;

-- name: LockToken :one
SELECT token_id, secret_hash, role, machine_id, site, bound_region, bound_provider, coalesce(bound_mac::text, '')::text AS bound_mac,
       bound_serial, created_at, expires_at, used_at, used_public_key_digest, used_fingerprint, used_by_agent_id, revoked_at,
       operation_id
FROM bootstrap_tokens WHERE token_id = @token_id FOR UPDATE;

-- name: UseToken :execrows
UPDATE bootstrap_tokens SET used_at = @now, used_public_key_digest = @public_key_digest, used_fingerprint = @fingerprint,
    used_by_agent_id = @agent_id
WHERE token_id = @token_id AND used_at IS NULL AND revoked_at IS NULL;

-- name: RevokeToken :execrows
UPDATE bootstrap_tokens SET revoked_at = @now WHERE token_id = @token_id AND used_at IS NULL AND revoked_at IS NULL;

-- name: ListTokens :many
SELECT token_id, role, coalesce(machine_id, '')::text AS machine_id, site, bound_region, bound_provider, created_at,
       expires_at, used_at, coalesce(used_by_agent_id, '')::text AS used_by_agent_id, revoked_at
FROM bootstrap_tokens
WHERE (@before_id::text = '' OR (created_at, token_id) < (@before_time::timestamptz, @before_id::text))
ORDER BY created_at DESC, token_id DESC LIMIT @page_size;

-- name: InsertAgent :exec
INSERT INTO agents (agent_id, role, machine_id, site, operation_id, identity_level, identity_trust, created_at)
VALUES (@agent_id, @role, @machine_id, @site, @operation_id, @identity_level, @identity_trust, @now);

-- name: InsertSite :exec
INSERT INTO sites (site) VALUES (@site) ON CONFLICT DO NOTHING;

-- name: InsertCert :execrows
INSERT INTO agent_certs (fingerprint, agent_id, serial_number, public_key_digest, chain_pem, not_before, not_after, issued_at, ca_generation)
VALUES (@fingerprint, @agent_id, @serial_number, @public_key_digest, @chain_pem, @not_before, @not_after, @issued_at, @ca_generation)
ON CONFLICT (fingerprint) DO NOTHING;

-- name: GetCert :one
SELECT * FROM agent_certs WHERE fingerprint = @fingerprint;

-- name: CertsOf :many
SELECT * FROM agent_certs WHERE agent_id = ANY(@agent_ids::text[]) ORDER BY agent_id, issued_at DESC;

-- name: MarkCertUsed :exec
UPDATE agent_certs SET first_used_at = @now WHERE fingerprint = @fingerprint AND first_used_at IS NULL;

-- name: ReplaceOlderCerts :exec
UPDATE agent_certs SET replaced_at = @now
WHERE agent_id = @agent_id AND replaced_at IS NULL AND fingerprint <> @fingerprint AND issued_at < @issued_before;

-- name: RevokeCerts :many
UPDATE agent_certs SET revoked_at = @now
WHERE agent_id = @agent_id AND (@fingerprint::text = '' OR fingerprint = @fingerprint) AND revoked_at IS NULL
RETURNING fingerprint;

-- name: RevokedSince :many
SELECT fingerprint FROM agent_certs WHERE revoked_at IS NOT NULL AND fingerprint = ANY(@fingerprints::text[]);

-- name: LockAgent :one
SELECT * FROM agents WHERE agent_id = @agent_id FOR UPDATE;

-- name: GetAgent :one
SELECT * FROM agents WHERE agent_id = @agent_id;

-- name: UpdateAgentAtHello :one
UPDATE agents SET version = @version, capabilities = @capabilities, simulated = @simulated, locked = @locked,
    state_id = @state_id, boot_id = @boot_id, hardware_fingerprint = @hardware_fingerprint,
    os_image_digest = @os_image_digest, epoch = epoch + 1
WHERE agent_id = @agent_id RETURNING epoch;

-- name: SetAgentLocked :exec
UPDATE agents SET locked = @locked WHERE agent_id = @agent_id AND locked <> @locked;

-- name: LockAgentState :one
-- After the machine and the agent. No event takes a number before the session of this hello can be seen.
SELECT * FROM agent_states WHERE agent_id = @agent_id AND state_id = @state_id FOR NO KEY UPDATE;

-- name: InsertAgentState :exec
INSERT INTO agent_states (agent_id, state_id, first_seen_at) VALUES (@agent_id, @state_id, @now) ON CONFLICT DO NOTHING;

-- name: AdvanceGrantSeq :execrows
UPDATE agent_states SET last_grant_seq = @seq, last_grant_command_id = @command_id, last_grant_nonce = @nonce
WHERE agent_id = @agent_id AND state_id = @state_id AND last_grant_seq < @seq;

-- name: TakeEvent :one
-- 1: the number is taken. 0: it was before. 2: the agent has a newer session.
SELECT take_event(@agent_id::text, @state_id::text, @seq::bigint, @epoch::bigint)::int;

-- name: InsertAgentBoot :exec
INSERT INTO agent_boots (agent_id, boot_id, boot_number, first_seen_at)
SELECT @agent_id, @boot_id, (SELECT coalesce(max(b.boot_number), 0) + 1 FROM agent_boots b WHERE b.agent_id = @agent_id), @now
ON CONFLICT DO NOTHING;

-- name: BootIsOld :one
SELECT EXISTS (SELECT 1 FROM agent_boots b WHERE b.agent_id = @agent_id AND b.boot_id = @boot_id
    AND b.boot_number < (SELECT max(c.boot_number) FROM agent_boots c WHERE c.agent_id = @agent_id)) AS old;

-- name: StartSession :exec
INSERT INTO agent_sessions (agent_id, session_id, epoch, controller_id, fingerprint, state_id, boot_id, started_at, last_heartbeat_at)
VALUES (@agent_id, @session_id, @epoch, @controller_id, @fingerprint, @state_id, @boot_id, @now, @now)
ON CONFLICT (agent_id) DO UPDATE SET session_id = excluded.session_id, epoch = excluded.epoch,
    controller_id = excluded.controller_id, fingerprint = excluded.fingerprint, state_id = excluded.state_id,
    boot_id = excluded.boot_id, started_at = excluded.started_at, last_heartbeat_at = excluded.last_heartbeat_at, ended_at = NULL
WHERE agent_sessions.epoch < excluded.epoch;

-- name: EndSessionsOfController :exec
-- Statements that end or begin many sessions lock them in the order of their agents, or two of them would wait for one another.
WITH own AS MATERIALIZED (
    SELECT s.agent_id FROM agent_sessions s WHERE s.controller_id = @controller_id AND s.ended_at IS NULL
    ORDER BY s.agent_id FOR NO KEY UPDATE)
UPDATE agent_sessions s SET ended_at = @now FROM own WHERE s.agent_id = own.agent_id;

-- name: FlushHeartbeats :exec
-- A session that somebody has locked is being ended or replaced: nothing waits for it here.
WITH beaten AS MATERIALIZED (
    SELECT s.agent_id, b.at
    FROM (SELECT unnest(@session_ids::text[]) AS session_id, unnest(@ats::timestamptz[]) AS at) b
    JOIN agent_sessions s ON s.session_id = b.session_id AND s.last_heartbeat_at < b.at
    FOR NO KEY UPDATE OF s SKIP LOCKED)
UPDATE agent_sessions s SET last_heartbeat_at = beaten.at FROM beaten WHERE s.agent_id = beaten.agent_id;

-- name: CandidatesFor :many
-- Who might take steps on the machines, with the machine each is for.
WITH wanted AS (
    SELECT unnest(@machine_ids::text[]) AS machine_id, unnest(@operation_ids::text[]) AS operation_id, unnest(@sites::text[]) AS site),
found AS (
    SELECT w.machine_id, a.agent_id FROM wanted w JOIN agents a ON a.machine_id = w.machine_id
    WHERE a.role <> 'installer' OR a.operation_id = w.operation_id
    UNION
    SELECT w.machine_id, a.agent_id FROM wanted w JOIN agents a ON a.role = 'site' AND a.site = w.site)
SELECT f.machine_id::text AS for_machine, a.agent_id, a.role, a.capabilities, a.simulated, a.state_id, a.boot_id, a.operation_id, a.os_image_digest, a.hardware_fingerprint, a.epoch,
       (s.agent_id IS NOT NULL AND s.ended_at IS NULL AND k.lease_until > @now)::boolean AS live,
       s.last_heartbeat_at, s.silent_from
FROM found f JOIN agents a ON a.agent_id = f.agent_id
LEFT JOIN agent_silence s ON s.agent_id = a.agent_id
LEFT JOIN controllers k ON k.controller_id = s.controller_id
ORDER BY f.machine_id, a.created_at;

-- name: ListAgents :many
SELECT a.*, s.session_id, s.controller_id, s.started_at AS session_started_at, s.last_heartbeat_at, s.ended_at
FROM agents a LEFT JOIN agent_sessions s ON s.agent_id = a.agent_id
WHERE (@agent_id::text = '' OR a.agent_id = @agent_id)
  AND (@machine_id::text = '' OR a.machine_id = @machine_id)
  AND (@site::text = '' OR a.site = @site)
  AND (@role::text = '' OR a.role = @role)
  AND (@connected::text = '' OR (s.session_id IS NOT NULL AND s.ended_at IS NULL) = (@connected::text = 'true'))
  AND a.agent_id > @after_id
ORDER BY a.agent_id LIMIT @page_size;

-- name: RenewLease :exec
INSERT INTO controllers (controller_id, version, started_at, lease_until)
VALUES (@controller_id, @version, @now, @lease_until)
ON CONFLICT (controller_id) DO UPDATE SET lease_until = excluded.lease_until;

-- name: InsertAudit :one
INSERT INTO audit_log (ts, actor, verb, target_id, request_id, operation_id, event_data)
VALUES (@ts, @actor, @verb, @target_id, @request_id, @operation_id, @event_data)
RETURNING audit_id;

-- name: ListAudit :many
SELECT * FROM audit_log
WHERE (@target_id::text = '' OR target_id = @target_id) AND (@before_id::bigint = 0 OR audit_id < @before_id)
  AND (@actor::text = '' OR actor = @actor OR event_data ->> 'identity' = @actor)
  AND (@verb::text = '' OR verb = @verb) AND (@verb_prefix::text = '' OR starts_with(verb, @verb_prefix))
  AND (sqlc.narg(since)::timestamptz IS NULL OR ts >= sqlc.narg(since)) AND (sqlc.narg(until)::timestamptz IS NULL OR ts < sqlc.narg(until))
ORDER BY audit_id DESC LIMIT @page_size;

-- name: AnnounceScrub :exec
-- The row that announces what ScrubAudit empties. The database refuses to empty any other.
INSERT INTO audit_log (ts, actor, verb, target_id, event_data, scrub_verb, scrub_through)
VALUES (@ts, @actor, @verb, @target_id, @event_data, @scrub_verb, @scrub_through);

-- name: NewestAudit :one
SELECT coalesce(max(audit_id), 0)::bigint FROM audit_log WHERE target_id = @target_id;

-- name: ScrubAudit :execrows
UPDATE audit_log SET event_data = '{}', salt = NULL
WHERE target_id = @target_id AND audit_id <= @scrub_through AND (@scrub_verb::text = '' OR verb = @scrub_verb)
  AND event_data <> '{}';

-- name: KnownCerts :many
SELECT fingerprint, agent_id, public_key_digest, not_after, (revoked_at IS NOT NULL)::boolean AS revoked, (replaced_at IS NOT NULL)::boolean AS replaced
FROM agent_certs WHERE fingerprint = ANY(@fingerprints::text[]);

-- name: LockCalmAgents :many
-- Locks agents and machines that no other transaction has locked, and returns the agents. One with another boot than its last is no
-- calm one and is left out: OpenCalmSessions is costly to plan.
SELECT a.agent_id FROM agents a JOIN machines m ON m.machine_id = a.machine_id
WHERE a.agent_id = ANY(@agent_ids::text[]) AND a.boot_id = ANY(@boot_ids::text[]) AND a.role = 'host'
ORDER BY m.machine_id FOR NO KEY UPDATE OF m, a SKIP LOCKED;

-- name: OpenCalmSessions :many
-- Sessions of agents that come back as they were, to machines on which nothing goes on: a hello changes nothing but the epoch and the
-- session. Agents and machines are locked. Whoever is not answered is looked at alone.
WITH hellos AS (
    SELECT unnest(@agent_ids::text[]) AS agent_id, unnest(@fingerprints::text[]) AS fingerprint, unnest(@session_ids::text[]) AS session_id,
           unnest(@controller_ids::text[]) AS controller_id, unnest(@versions::text[]) AS version, unnest(@capabilities::text[]) AS capabilities,
           unnest(@simulated::boolean[]) AS simulated, unnest(@locked::boolean[]) AS locked, unnest(@state_ids::text[]) AS state_id,
           unnest(@boot_ids::text[]) AS boot_id, unnest(@hardware::text[]) AS hardware, unnest(@images::text[]) AS image,
           unnest(@last_grants::bigint[]) AS last_grant, unnest(@last_events::bigint[]) AS last_event, unnest(@ats::timestamptz[]) AS at),
same AS MATERIALIZED (
    SELECT h.*, a.epoch + 1 AS epoch, m.machine_id, a.site
    FROM hellos h
    JOIN agents a ON a.agent_id = h.agent_id AND a.role = 'host' AND a.state_id = h.state_id AND a.boot_id = h.boot_id
        AND a.hardware_fingerprint = h.hardware AND a.version = h.version AND a.simulated = h.simulated AND a.locked = h.locked
        AND a.os_image_digest = h.image AND array_to_string(a.capabilities, chr(31)) = h.capabilities
    JOIN machines m ON m.machine_id = a.machine_id AND m.agent_id = a.agent_id AND m.boot_id = a.boot_id AND m.simulated = a.simulated
        AND m.node_state = 'active' AND m.deleted_at IS NULL AND m.unresolved_command_id IS NULL AND m.current_operation_id IS NULL
    JOIN agent_certs c ON c.fingerprint = h.fingerprint AND c.agent_id = a.agent_id AND c.first_used_at IS NOT NULL
        AND c.revoked_at IS NULL AND c.replaced_at IS NULL
    JOIN agent_boots b ON b.agent_id = a.agent_id AND b.boot_id = h.boot_id
    JOIN machine_conditions r ON r.machine_id = m.machine_id AND r.type = 'Reachable' AND r.status AND r.reason = 'SessionOpen' AND r.message = ''
    WHERE NOT EXISTS (SELECT 1 FROM agent_boots n WHERE n.agent_id = a.agent_id AND n.boot_number > b.boot_number)
      AND NOT EXISTS (SELECT 1 FROM operations o WHERE o.target_id = m.machine_id AND o.phase IN ('PENDING', 'RUNNING'))
      AND NOT EXISTS (SELECT 1 FROM commands u WHERE u.executor_id = a.agent_id AND u.state IN ('QUEUED', 'SENT', 'ACKED', 'GRANTED'))),
-- Locked apart: a row of the join above would be copied for the lock each time that a loop meets it.
calm AS MATERIALIZED (
    SELECT s.*, t.last_event_seq
    FROM same s
    JOIN agent_states t ON t.agent_id = s.agent_id AND t.state_id = s.state_id AND t.last_grant_seq <= s.last_grant
        AND t.last_event_seq <= s.last_event
    ORDER BY t.agent_id, t.state_id FOR NO KEY UPDATE OF t),
counted AS (
    UPDATE agents SET epoch = calm.epoch FROM calm WHERE agents.agent_id = calm.agent_id),
started AS (
    INSERT INTO agent_sessions (agent_id, session_id, epoch, controller_id, fingerprint, state_id, boot_id, started_at, last_heartbeat_at)
    SELECT calm.agent_id, calm.session_id, calm.epoch, calm.controller_id, calm.fingerprint, calm.state_id, calm.boot_id, calm.at, calm.at FROM calm
    ORDER BY calm.agent_id
    ON CONFLICT (agent_id) DO UPDATE SET session_id = excluded.session_id, epoch = excluded.epoch,
        controller_id = excluded.controller_id, fingerprint = excluded.fingerprint, state_id = excluded.state_id,
        boot_id = excluded.boot_id, started_at = excluded.started_at, last_heartbeat_at = excluded.last_heartbeat_at, ended_at = NULL)
SELECT calm.agent_id::text AS agent_id, calm.epoch::bigint AS epoch, calm.machine_id::text AS machine_id, calm.site::text AS site,
       calm.last_event_seq::bigint AS last_event_seq
FROM calm;

-- name: EndSessions :exec
WITH over AS MATERIALIZED (
    SELECT s.agent_id, e.at
    FROM (SELECT unnest(@agent_ids::text[]) AS agent_id, unnest(@session_ids::text[]) AS session_id, unnest(@ats::timestamptz[]) AS at) e
    JOIN agent_sessions s ON s.agent_id = e.agent_id AND s.session_id = e.session_id AND s.ended_at IS NULL
    ORDER BY s.agent_id FOR NO KEY UPDATE OF s)
UPDATE agent_sessions s SET ended_at = over.at FROM over WHERE s.agent_id = over.agent_id;

-- name: UnsettledCommandsOf :many
SELECT command_id, executor_id, spec, digest FROM commands
WHERE executor_id = ANY(@executor_ids::text[]) AND state IN ('SENT', 'ACKED', 'GRANTED') ORDER BY created_at;

-- name: TakeInventories :many
-- Takes the numbers of events of different agents, and keeps the inventories that differ from the newest ones. A number that has been
-- seen leaves nothing. Of a machine's older ones only some stay.
WITH told AS (
    SELECT unnest(@agent_ids::text[]) AS agent_id, unnest(@state_ids::text[]) AS state_id, unnest(@seqs::bigint[]) AS seq,
           unnest(@machine_ids::text[]) AS machine_id, unnest(@ats::timestamptz[]) AS at, unnest(@hashes::text[]) AS hash,
           unnest(@documents::text[]) AS document, unnest(@simulated::boolean[]) AS simulated, unnest(@epochs::bigint[]) AS epoch),
taken AS MATERIALIZED (
    SELECT inorder.* FROM (SELECT * FROM told ORDER BY agent_id, state_id) inorder
    WHERE take_event(inorder.agent_id, inorder.state_id, inorder.seq, inorder.epoch) = 1),
kept AS (
    INSERT INTO inventories (machine_id, reported_at, agent_id, hash, document, simulated)
    SELECT taken.machine_id, taken.at, taken.agent_id, taken.hash, taken.document::jsonb, taken.simulated FROM taken
    WHERE taken.document <> '' AND NOT EXISTS (
        SELECT 1 FROM (SELECT i.hash FROM inventories i WHERE i.machine_id = taken.machine_id ORDER BY i.reported_at DESC LIMIT 1) last
        WHERE last.hash = taken.hash)
    ON CONFLICT DO NOTHING),
pruned AS (
    DELETE FROM inventories i USING taken WHERE i.machine_id = taken.machine_id AND i.reported_at < (
        SELECT n.reported_at FROM inventories n WHERE n.machine_id = taken.machine_id ORDER BY n.reported_at DESC LIMIT 1 OFFSET @keep::int))
SELECT taken.agent_id::text AS agent_id FROM taken;

-- name: CertificateAuthorities :many
SELECT * FROM certificate_authorities ORDER BY generation;

-- name: LockCertificateAuthorities :exec
LOCK TABLE certificate_authorities IN SHARE ROW EXCLUSIVE MODE;

-- name: InsertCertificateAuthority :exec
INSERT INTO certificate_authorities (generation, root_pem, intermediate_pem, cross_pem, sealed_keys, created_at, created_by)
VALUES (@generation, @root_pem, @intermediate_pem, @cross_pem, @sealed_keys, @created_at, @created_by)
ON CONFLICT (generation) DO NOTHING;

-- name: WithdrawCertificateAuthority :exec
UPDATE certificate_authorities SET withdrawn_at = @now, withdrawn_by = @actor WHERE generation = @generation AND withdrawn_at IS NULL;

-- name: HoldersOfOldCertificates :many
-- Agents that can come, or come back, only with a certificate of an older generation: neither revoked nor replaced, and the one in
-- use where there is one. The last column counts all of them.
WITH held AS (
    SELECT DISTINCT ON (x.agent_id) x.agent_id, x.ca_generation, x.not_after FROM agent_certs x
    WHERE x.revoked_at IS NULL AND x.replaced_at IS NULL
    ORDER BY x.agent_id, (x.first_used_at IS NOT NULL) DESC, x.issued_at DESC)
SELECT a.agent_id, COALESCE(a.machine_id, '')::text AS machine_id, a.site, a.role, h.ca_generation, h.not_after,
       (s.agent_id IS NOT NULL)::boolean AS connected, count(*) OVER () AS all_of_them
FROM held h
JOIN agents a ON a.agent_id = h.agent_id
LEFT JOIN machines m ON m.machine_id = a.machine_id
LEFT JOIN agent_sessions s ON s.agent_id = a.agent_id AND s.ended_at IS NULL
WHERE h.ca_generation < @newest::integer
  AND h.not_after > (CASE WHEN a.role = 'installer' THEN @now::timestamptz ELSE @expired_before::timestamptz END)
  AND (m.machine_id IS NULL OR m.deleted_at IS NULL AND m.node_state <> 'retired')
ORDER BY a.role, a.site, a.agent_id LIMIT @page_size;
