-- What a client may say it has read before it writes: each of these grows with every change of its row.
ALTER TABLE plans ADD COLUMN version bigint NOT NULL DEFAULT 1;
ALTER TABLE budgets ADD COLUMN version bigint NOT NULL DEFAULT 1;
ALTER TABLE node_groups ADD COLUMN version bigint NOT NULL DEFAULT 1;
-- The revision of a site moves with its machines too; this is of its segments alone.
ALTER TABLE sites ADD COLUMN version bigint NOT NULL DEFAULT 1;
ALTER TABLE webhooks ADD COLUMN version bigint NOT NULL DEFAULT 1;

-- A plan that no run has used may go; operations point to the others without a foreign key.
DROP TRIGGER plans_keep ON plans;
CREATE TRIGGER plans_keep BEFORE DELETE ON plans FOR EACH ROW WHEN (OLD.used_at IS NOT NULL OR OLD.built_in)
    EXECUTE FUNCTION refuse_delete();

-- The client's names of a registration and of a token, so that both can be repeated.
ALTER TABLE machines ADD COLUMN registered_by_request text NOT NULL DEFAULT '';
ALTER TABLE bootstrap_tokens
    ADD COLUMN request_id   text  NOT NULL DEFAULT '',
    ADD COLUMN request_body jsonb NOT NULL DEFAULT '{}';
CREATE UNIQUE INDEX bootstrap_tokens_request ON bootstrap_tokens (coalesce(machine_id, ''), site, request_id) WHERE request_id <> '';
