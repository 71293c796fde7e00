ALTER TABLE agent_states
    DROP COLUMN last_grant_command_id,
    DROP COLUMN last_grant_nonce;
