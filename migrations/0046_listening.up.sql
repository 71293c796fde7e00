-- Since when the controllers of this fleet have listened to agents without a gap. One row.
CREATE TABLE listening (
    one            boolean     PRIMARY KEY DEFAULT true CHECK (one),
    since          timestamptz NOT NULL DEFAULT 'epoch',
    -- The newest time at which a controller listened. NULL: none ever has.
    until          timestamptz,
    -- Where the last gap began. NULL: there was none.
    away_since     timestamptz,
    -- A longer time without a listening controller is a gap.
    max_gap        interval    NOT NULL DEFAULT '3 seconds',
    -- What agents may take to come back after a gap.
    reconnect_time interval    NOT NULL DEFAULT '0'
);
-- A fleet that exists was away at least while its schema changed.
INSERT INTO listening (until)
SELECT CASE WHEN EXISTS (SELECT 1 FROM agent_sessions) THEN coalesce((SELECT max(last_heartbeat_at) FROM agent_sessions), 'epoch') END;

-- The same of one controller. NULL: it has not listened yet, or is of an older version.
ALTER TABLE controllers ADD COLUMN listening_since timestamptz, ADD COLUMN listening_until timestamptz;

-- The sessions of agents with the time from which the silence of each counts: no time counts in which the agent could
-- not be heard, nor the time that it may take to come back. Every query that judges silence reads silent_from.
CREATE VIEW agent_silence AS
SELECT s.agent_id, s.session_id, s.controller_id, s.started_at, s.last_heartbeat_at, s.ended_at,
       greatest(s.last_heartbeat_at,
                CASE WHEN w.until < now() - w.max_gap THEN now() END,
                CASE WHEN s.last_heartbeat_at < w.since THEN w.since + w.reconnect_time END,
                CASE WHEN s.last_heartbeat_at < k.listening_since THEN k.listening_since + w.reconnect_time
                     WHEN k.listening_until < w.until - w.max_gap THEN k.listening_until + w.reconnect_time END)::timestamptz AS silent_from
FROM agent_sessions s CROSS JOIN listening w LEFT JOIN controllers k ON k.controller_id = s.controller_id;
