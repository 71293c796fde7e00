-- The ask with the highest grant number of a memory: one that comes again is answered again, and is no older copy.
ALTER TABLE agent_states
    ADD COLUMN last_grant_command_id text  NOT NULL DEFAULT '',
    ADD COLUMN last_grant_nonce      bytea NOT NULL DEFAULT '';
