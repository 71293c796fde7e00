-- Kubernetes clusters that machines join. What is logged in with is sealed with the controller's key, and reaches only the
-- site agent that has a command for the cluster.
CREATE TABLE clusters (
    cluster_ref text PRIMARY KEY,
    -- https://host:port of the API server.
    server      text        NOT NULL,
    ca_pem      bytea       NOT NULL,
    sealed      bytea       NOT NULL,
    version     bigint      NOT NULL DEFAULT 1,
    updated_at  timestamptz NOT NULL
);
