-- Takes the number of an agent's event: 1 where it is taken, 0 where it was taken before, 2 where the agent has a newer
-- session. A hello locks the memory before it compares numbers. So this waits for it, and then sees its session: each
-- statement of a volatile function reads what has been committed when it begins.
CREATE FUNCTION take_event(of_agent text, of_state text, number bigint, of_epoch bigint) RETURNS int LANGUAGE plpgsql AS $$
DECLARE taken boolean;
BEGIN
    SELECT last_event_seq < number INTO taken FROM agent_states
    WHERE agent_id = of_agent AND state_id = of_state FOR NO KEY UPDATE;
    IF of_epoch > 0 AND EXISTS (SELECT 1 FROM agent_sessions s WHERE s.agent_id = of_agent AND s.epoch > of_epoch) THEN
        RETURN 2;
    END IF;
    IF taken IS NOT TRUE THEN
        RETURN 0;
    END IF;
    UPDATE agent_states SET last_event_seq = number WHERE agent_id = of_agent AND state_id = of_state;
    RETURN 1;
END $$;
