-- Rows are chained when they are final. What is counted is counted outside the chain, and its sum is chained once.

-- Refusals for lack of rights of minutes that are not over, or not chained yet. Minutes are those of the database's clock.
CREATE TABLE refusal_counts (
    minute     timestamptz NOT NULL,
    actor      text        NOT NULL,
    address    text        NOT NULL,
    method     text        NOT NULL,
    -- The machine that the first of the calls was about; empty where there was none.
    machine_id text        NOT NULL,
    count      bigint      NOT NULL,
    PRIMARY KEY (minute, actor, address, method)
);

-- The last batch of counts that each controller process has stored: a batch whose COMMIT was not answered is sent again.
CREATE TABLE refusal_writers (
    writer_id text        PRIMARY KEY,
    batch     bigint      NOT NULL,
    stored_at timestamptz NOT NULL
);

-- One row: minutes before this time are chained, and nothing counts in them any more, whatever the clock does.
CREATE TABLE refusal_chain (
    only_row       boolean     PRIMARY KEY DEFAULT true CHECK (only_row),
    chained_before timestamptz NOT NULL
);
INSERT INTO refusal_chain (chained_before) VALUES (date_trunc('minute', clock_timestamp()));

-- count_refusals adds one batch of a writer to the minute that is open. Writers share the lock that ending a minute takes
-- alone. Beyond 1000 rows of a minute, refusals count in rows whose actor, address and method are "*".
CREATE FUNCTION count_refusals(writer text, number bigint, actors text[], addresses text[], methods text[], machines text[],
    counts bigint[]) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    this_minute timestamptz;
    held        bigint;
BEGIN
    PERFORM pg_advisory_xact_lock_shared(716422831);
    INSERT INTO refusal_writers AS w (writer_id, batch, stored_at) VALUES (writer, number, clock_timestamp())
    ON CONFLICT (writer_id) DO UPDATE SET batch = excluded.batch, stored_at = excluded.stored_at WHERE w.batch < excluded.batch;
    IF NOT FOUND THEN
        RETURN;
    END IF;
    SELECT greatest(date_trunc('minute', clock_timestamp()), c.chained_before) INTO STRICT this_minute FROM refusal_chain c;
    SELECT count(*) INTO held FROM refusal_counts r WHERE r.minute = this_minute;
    INSERT INTO refusal_counts AS r (minute, actor, address, method, machine_id, count)
    SELECT this_minute, p.actor, p.address, p.method, min(p.machine_id), sum(p.count)
    FROM (SELECT CASE WHEN n.fits THEN n.actor ELSE '*' END AS actor, CASE WHEN n.fits THEN n.address ELSE '*' END AS address,
                 CASE WHEN n.fits THEN n.method ELSE '*' END AS method, CASE WHEN n.fits THEN n.machine_id ELSE '' END AS machine_id,
                 n.count
          FROM (SELECT v.*, o.actor IS NOT NULL
                       OR held + row_number() OVER (PARTITION BY o.actor IS NULL ORDER BY v.actor, v.address, v.method) < 1000 AS fits
                FROM (SELECT unnest(actors) AS actor, unnest(addresses) AS address, unnest(methods) AS method,
                             unnest(machines) AS machine_id, unnest(counts) AS count) v
                LEFT JOIN refusal_counts o ON o.minute = this_minute AND o.actor = v.actor AND o.address = v.address
                     AND o.method = v.method) n) p
    GROUP BY 2, 3, 4 ORDER BY 2, 3, 4
    ON CONFLICT (minute, actor, address, method) DO UPDATE SET count = r.count + excluded.count;
END $$;

-- A row with scrub_through announces that the data of older rows is emptied: of those with its target, up to that number, and of
-- the verb scrub_verb, or of every verb where that is empty.
ALTER TABLE audit_log ADD COLUMN scrub_through bigint, ADD COLUMN scrub_verb text;
CREATE INDEX audit_log_scrubs ON audit_log (target_id, scrub_through) WHERE scrub_through IS NOT NULL;

CREATE OR REPLACE FUNCTION timeline_of_audits() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    changes text;
BEGIN
    SELECT string_agg(concat(E'\x1e', (SELECT m.machine_id FROM machines m WHERE m.machine_id = n.target_id), E'\x1f',
        json_build_array('audit', n.actor, n.operation_id, '', json_strip_nulls(json_build_object(
            'audit_id', n.audit_id::text, 'verb', n.verb, 'target', n.target_id, 'request_id', nullif(n.request_id, ''),
            'at', ((extract(epoch FROM n.ts) * 1000000)::bigint)::text,
            'scrub_through', n.scrub_through::text, 'scrub_verb', nullif(n.scrub_verb, ''),
            'data_digest', encode(sha256(n.salt || convert_to(n.event_data::text, 'UTF8')), 'hex'))))), '')
    INTO changes FROM rows_after n;
    IF changes IS NOT NULL THEN
        changes := timeline_add(changes);
    END IF;
    RETURN NULL;
END $$;

-- A row of the audit log changes in one way alone: its data and salt are emptied, after a later row has announced that.
CREATE FUNCTION keep_audit_row() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF NEW.event_data <> '{}' OR NEW.salt IS NOT NULL
        OR (to_jsonb(NEW) - 'event_data' - 'salt') IS DISTINCT FROM (to_jsonb(OLD) - 'event_data' - 'salt') THEN
        RAISE EXCEPTION 'rows of % never change', TG_TABLE_NAME USING ERRCODE = 'restrict_violation';
    END IF;
    IF NOT EXISTS (SELECT 1 FROM audit_log a WHERE a.target_id = OLD.target_id AND a.scrub_through >= OLD.audit_id
                   AND a.audit_id > OLD.audit_id AND a.scrub_verb IN ('', OLD.verb)) THEN
        RAISE EXCEPTION 'no row announces that row % of % is emptied', OLD.audit_id, TG_TABLE_NAME
            USING ERRCODE = 'restrict_violation';
    END IF;
    RETURN NEW;
END $$;
CREATE TRIGGER audit_log_keep BEFORE UPDATE ON audit_log FOR EACH ROW EXECUTE FUNCTION keep_audit_row();
CREATE TRIGGER audit_log_keep_all BEFORE DELETE OR TRUNCATE ON audit_log FOR EACH STATEMENT EXECUTE FUNCTION refuse_rewriting();

-- Columns that the history has from the first entry of a row on never change: no trigger would chain the change. Nor does a row
-- disappear.
CREATE TRIGGER machines_chained BEFORE UPDATE OF machine_id ON machines
    FOR EACH ROW WHEN (OLD.machine_id <> NEW.machine_id) EXECUTE FUNCTION refuse_rewriting();
CREATE TRIGGER machine_conditions_chained BEFORE UPDATE OF machine_id, type ON machine_conditions
    FOR EACH ROW WHEN ((OLD.machine_id, OLD.type) IS DISTINCT FROM (NEW.machine_id, NEW.type)) EXECUTE FUNCTION refuse_rewriting();
CREATE TRIGGER operations_chained BEFORE UPDATE OF operation_id, target_id, type ON operations
    FOR EACH ROW WHEN ((OLD.operation_id, OLD.target_id, OLD.type) IS DISTINCT FROM (NEW.operation_id, NEW.target_id, NEW.type))
    EXECUTE FUNCTION refuse_rewriting();
CREATE TRIGGER operation_steps_chained BEFORE UPDATE OF operation_id, idx, name ON operation_steps
    FOR EACH ROW WHEN ((OLD.operation_id, OLD.idx, OLD.name) IS DISTINCT FROM (NEW.operation_id, NEW.idx, NEW.name))
    EXECUTE FUNCTION refuse_rewriting();
CREATE TRIGGER commands_chained BEFORE UPDATE OF command_id, operation_id, target_id, kind, step_name, attempt, executor_id ON commands
    FOR EACH ROW WHEN ((OLD.command_id, OLD.operation_id, OLD.target_id, OLD.kind, OLD.step_name, OLD.attempt, OLD.executor_id)
        IS DISTINCT FROM (NEW.command_id, NEW.operation_id, NEW.target_id, NEW.kind, NEW.step_name, NEW.attempt, NEW.executor_id))
    EXECUTE FUNCTION refuse_rewriting();
CREATE TRIGGER workflows_chained BEFORE UPDATE OF workflow_id, machine_id ON workflows
    FOR EACH ROW WHEN ((OLD.workflow_id, OLD.machine_id) IS DISTINCT FROM (NEW.workflow_id, NEW.machine_id))
    EXECUTE FUNCTION refuse_rewriting();
CREATE TRIGGER operation_steps_keep BEFORE DELETE ON operation_steps FOR EACH ROW EXECUTE FUNCTION refuse_delete();
CREATE TRIGGER commands_keep BEFORE DELETE ON commands FOR EACH ROW EXECUTE FUNCTION refuse_delete();
CREATE TRIGGER machines_keep_all BEFORE TRUNCATE ON machines FOR EACH STATEMENT EXECUTE FUNCTION refuse_rewriting();
CREATE TRIGGER machine_conditions_keep_all BEFORE TRUNCATE ON machine_conditions FOR EACH STATEMENT EXECUTE FUNCTION refuse_rewriting();
CREATE TRIGGER operations_keep_all BEFORE TRUNCATE ON operations FOR EACH STATEMENT EXECUTE FUNCTION refuse_rewriting();
CREATE TRIGGER operation_steps_keep_all BEFORE TRUNCATE ON operation_steps FOR EACH STATEMENT EXECUTE FUNCTION refuse_rewriting();
CREATE TRIGGER commands_keep_all BEFORE TRUNCATE ON commands FOR EACH STATEMENT EXECUTE FUNCTION refuse_rewriting();
CREATE TRIGGER workflows_keep_all BEFORE TRUNCATE ON workflows FOR EACH STATEMENT EXECUTE FUNCTION refuse_rewriting();
CREATE TRIGGER node_state_log_keep_all BEFORE TRUNCATE ON node_state_log FOR EACH STATEMENT EXECUTE FUNCTION refuse_rewriting();

-- timeline_restored notes in every history that the database went back to an older copy. What the copy had of a history are the
-- entries before this one. "through" is the time of the copy's newest entry, in microseconds since 1970.
CREATE FUNCTION timeline_restored() RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    changes text;
BEGIN
    WITH owners AS (SELECT '' AS id UNION ALL SELECT m.machine_id FROM machines m),
    newest AS (SELECT max(last.ts) AS ts FROM owners o
               CROSS JOIN LATERAL (SELECT t.ts FROM machine_timeline t WHERE t.machine_id = o.id ORDER BY t.seq DESC LIMIT 1) last)
    SELECT string_agg(concat(E'\x1e', o.id, E'\x1f', json_build_array('restored', '', '', '', json_build_object(
        'through', coalesce((extract(epoch FROM n.ts) * 1000000)::bigint, 0)::text))), '')
    INTO changes FROM owners o CROSS JOIN newest n;
    changes := timeline_add(changes);
END $$;

-- Rows of refusals used to be counted up after they had been chained, and differences of drifts were emptied without a row about
-- it. The history states once what they contain at this point; it does not vouch for their data before.
SET LOCAL statement_timeout = 0;
DO $$
DECLARE
    note record;
    done text;
BEGIN
    FOR note IN
        SELECT a.audit_id, encode(sha256(a.salt || convert_to(a.event_data::text, 'UTF8')), 'hex') AS digest
        FROM audit_log a WHERE a.verb = 'REFUSED' AND a.salt IS NOT NULL ORDER BY a.audit_id
    LOOP
        done := timeline_add(concat(E'\x1e\x1f', json_build_array('recount', '', '', '', json_build_object(
            'audit_id', note.audit_id::text, 'data_digest', note.digest))));
    END LOOP;
END $$;
INSERT INTO audit_log (ts, actor, verb, target_id, scrub_verb, scrub_through)
SELECT now(), 'system', 'SCRUB_DRIFT', a.target_id, 'CONFIG_DRIFT', max(a.audit_id)
FROM audit_log a WHERE a.verb = 'CONFIG_DRIFT' AND a.salt IS NULL AND a.event_data = '{}' GROUP BY a.target_id ORDER BY a.target_id;
SET CONSTRAINTS ALL IMMEDIATE;
