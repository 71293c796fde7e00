-- Onboardings and decommissions. Each attempt is an operation; the row follows it.

CREATE TABLE workflows (
    workflow_id             text PRIMARY KEY,
    machine_id              text        NOT NULL REFERENCES machines,
    kind                    text        NOT NULL CHECK (kind IN ('ONBOARDING', 'DECOMMISSION')),
    mode                    text        NOT NULL CHECK (mode IN ('', 'SOFT_RESET', 'REIMAGE', 'FULL_DECOMMISSION', 'STORAGE_CLEANUP')),
    state                   text        NOT NULL CHECK (state IN ('PENDING', 'RUNNING', 'COMPLETED', 'FAILED_RETRYABLE',
                                            'FAILED_MANUAL_INTERVENTION', 'CANCELLED', 'COMPENSATING', 'RECONCILED')),
    -- The stages, in order; fixed at the start.
    plan                    text[]      NOT NULL,
    stage                   text        NOT NULL,
    stage_idx               int         NOT NULL DEFAULT 0,
    attempt_count           int         NOT NULL DEFAULT 0,
    -- How often in a row it has failed for the same reason.
    repeats                 int         NOT NULL DEFAULT 0,
    failure_class           text        NOT NULL DEFAULT '',
    reason                  text        NOT NULL DEFAULT '',
    message                 text        NOT NULL DEFAULT '',
    observed_provider_state text        NOT NULL DEFAULT '',
    last_action             text        NOT NULL DEFAULT '',
    adopted                 boolean     NOT NULL DEFAULT false,
    evidence                jsonb       NOT NULL DEFAULT '{}',
    -- The current attempt's, or the last one's.
    operation_id            text REFERENCES operations,
    request_id              text        NOT NULL,
    params                  jsonb       NOT NULL DEFAULT '{}',
    created_at              timestamptz NOT NULL,
    updated_at              timestamptz NOT NULL,
    ended_at                timestamptz,
    UNIQUE (machine_id, request_id),
    CHECK ((kind = 'ONBOARDING') = (mode = '')),
    CHECK ((state IN ('COMPLETED', 'RECONCILED', 'CANCELLED')) = (ended_at IS NOT NULL))
);
-- A machine has one workflow that holds it, or none.
CREATE UNIQUE INDEX workflows_one_open ON workflows (machine_id) WHERE ended_at IS NULL;
CREATE INDEX workflows_newest ON workflows (created_at DESC, workflow_id DESC);
CREATE INDEX workflows_of_machine ON workflows (machine_id, created_at DESC, workflow_id DESC);
CREATE INDEX workflows_of_operation ON workflows (operation_id);
CREATE TRIGGER workflows_keep BEFORE DELETE ON workflows FOR EACH ROW EXECUTE FUNCTION refuse_delete();

-- A workflow that has reached its end never changes again; one that was cancelled may be run again.
CREATE FUNCTION workflows_final() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF OLD.state IN ('COMPLETED', 'RECONCILED') AND NEW IS DISTINCT FROM OLD THEN
        RAISE EXCEPTION 'workflow % has ended and does not change', OLD.workflow_id;
    END IF;
    RETURN NEW;
END
$$;
CREATE TRIGGER workflows_final BEFORE UPDATE ON workflows FOR EACH ROW EXECUTE FUNCTION workflows_final();
