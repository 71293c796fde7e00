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
