-- name: ControllersAlive :many
SELECT controller_id, heartbeat_ms FROM controllers WHERE lease_until > @now ORDER BY controller_id;

-- name: SetHeartbeat :exec
UPDATE controllers SET heartbeat_ms = @heartbeat_ms WHERE controller_id = @controller_id AND heartbeat_ms <> @heartbeat_ms;

-- name: RenewJobLease :exec
UPDATE controllers SET jobs_until = clock_timestamp() + (@length::interval)
WHERE controller_id = @controller_id;

-- name: ReleaseLease :exec
UPDATE controllers SET lease_until = @now, jobs_until = least(jobs_until, now()) WHERE controller_id = @controller_id AND lease_until > @now;

-- name: DescribeController :exec
UPDATE controllers SET hostname = @hostname WHERE controller_id = @controller_id;

-- name: DrainController :exec
UPDATE controllers SET draining_since = @now WHERE controller_id = @controller_id AND draining_since IS NULL;

-- name: ListControllers :many
-- Ids grow with time.
SELECT k.controller_id, k.version, k.hostname, k.started_at, k.lease_until, k.draining_since, k.heartbeat_ms,
       (SELECT count(*) FROM agent_sessions s WHERE s.controller_id = k.controller_id AND s.ended_at IS NULL) AS sessions
FROM controllers k
WHERE (@gone_too::boolean OR k.lease_until > @now) AND (@before_id::text = '' OR k.controller_id < @before_id)
ORDER BY k.controller_id DESC LIMIT @page_size;

-- name: ForgetControllers :execrows
-- The oldest of those that have been gone for long, and that hold nothing.
DELETE FROM controllers WHERE controller_id IN (
    SELECT k.controller_id FROM controllers k
    WHERE k.lease_until < @before
      AND NOT EXISTS (SELECT 1 FROM agent_sessions s WHERE s.controller_id = k.controller_id AND s.ended_at IS NULL)
    ORDER BY k.lease_until LIMIT @max_rows);

-- name: CountLiveSessions :one
SELECT count(*) FROM agent_sessions WHERE ended_at IS NULL;

-- name: Announce :exec
SELECT pg_notify(@channel::text, @payload::text);

-- name: HandOver :exec
-- One message for each other controller that holds a session of one of the agents.
SELECT pg_notify('ingot_to_' || s.controller_id, string_agg(w.item, ' '))
FROM (SELECT unnest(@agent_ids::text[]) AS agent_id, unnest(@items::text[]) AS item) w
JOIN agent_sessions s ON s.agent_id = w.agent_id AND s.ended_at IS NULL AND s.controller_id <> @controller_id
GROUP BY s.controller_id;

-- name: CommandsHeldOut :many
SELECT command_id, executor_id, spec, digest, state FROM commands WHERE command_id = ANY(@command_ids::text[]);

-- name: Unheard :many
-- Commands, and cancels of granted ones, that an agent whose session is here has not answered for a while.
SELECT c.command_id, c.executor_id, c.spec, c.digest, (c.state = 'GRANTED')::boolean AS cancel,
       CASE WHEN c.state = 'SENT' THEN c.sent_at ELSE o.cancel_requested_at END::timestamptz AS since
FROM commands c
JOIN agent_sessions s ON s.agent_id = c.executor_id AND s.ended_at IS NULL AND s.controller_id = @controller_id
JOIN operations o ON o.operation_id = c.operation_id
WHERE c.state IN ('QUEUED', 'SENT', 'ACKED', 'GRANTED')
  AND (c.state = 'SENT' AND c.sent_at < @before OR c.state = 'GRANTED' AND o.cancel_requested_at < @before)
LIMIT 1000;

-- name: MovedSessions :many
-- Sessions that are not what their controller takes them for: a newer one was opened elsewhere, or somebody has ended them.
SELECT m.agent_id::text AS agent_id, s.epoch, a.hardware_fingerprint, (s.epoch = m.epoch)::boolean AS ended
FROM (SELECT unnest(@agent_ids::text[]) AS agent_id, unnest(@epochs::bigint[]) AS epoch) m
JOIN agent_sessions s ON s.agent_id = m.agent_id AND (s.epoch > m.epoch OR s.epoch = m.epoch AND s.ended_at IS NOT NULL)
JOIN agents a ON a.agent_id = m.agent_id;

-- name: DatabaseTime :one
-- What time it is there, whenever the transaction began.
SELECT clock_timestamp()::timestamptz AS now;

-- name: ExtendListening :one
-- A controller listens to agents now. A gap that is longer than max_gap begins the time anew, for the controller and for the fleet.
WITH own AS (
    UPDATE controllers SET listening_until = clock_timestamp(),
        listening_since = CASE WHEN listening_until >= clock_timestamp() - @max_gap::interval THEN listening_since
                               ELSE clock_timestamp() END
    WHERE controller_id = @controller_id)
UPDATE listening SET until = clock_timestamp(), max_gap = @max_gap, reconnect_time = @reconnect_time,
    since = CASE WHEN until < clock_timestamp() - @max_gap THEN clock_timestamp() ELSE since END,
    away_since = CASE WHEN until < clock_timestamp() - @max_gap THEN until ELSE away_since END
RETURNING since;

-- name: CountSessions :one
-- All agents that have ever had a session: those that may come back.
SELECT count(*) FROM agent_sessions;

-- name: Listening :one
-- away_since is where the last gap began, and caught_up_at when agents have had the time to come back; epoch where there was none.
-- A gap that still goes on ends now at the earliest.
SELECT coalesce(CASE WHEN w.until < now() - w.max_gap THEN w.until ELSE w.away_since END, 'epoch')::timestamptz AS away_since,
       coalesce(CASE WHEN w.until < now() - w.max_gap THEN now() + w.reconnect_time
                     WHEN w.away_since IS NOT NULL THEN w.since + w.reconnect_time END, 'epoch')::timestamptz AS caught_up_at
FROM listening w;

-- name: AgentsAwaited :one
-- Agents that were connected when the last gap began, and that were not heard since it ended.
SELECT count(*) FROM agent_silence v CROSS JOIN listening w
WHERE v.last_heartbeat_at < w.since AND v.last_heartbeat_at >= w.away_since - @heard_within::interval;
