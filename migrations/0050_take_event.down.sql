DROP FUNCTION take_event(text, text, bigint, bigint);
