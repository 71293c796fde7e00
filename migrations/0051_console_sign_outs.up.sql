-- Sessions of the console that a person has signed out of, until their cookies would have ended anyway.
CREATE TABLE console_sign_outs (
    session_id text PRIMARY KEY CHECK (length(session_id) BETWEEN 1 AND 64),
    expires_at timestamptz NOT NULL
);
CREATE INDEX console_sign_outs_by_end ON console_sign_outs (expires_at);
