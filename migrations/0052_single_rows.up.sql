-- Tables of a single row change too seldom for autovacuum to analyze them, and the planner takes them for about a thousand
-- rows: every query that reads agent_silence was planned for a thousand times its rows.
ANALYZE api_tokens_version;
ANALYZE cluster_state;
ANALYZE listening;
ANALYZE refusal_chain;
