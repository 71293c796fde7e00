-- What the BMC of a machine has said last of its hardware.
CREATE TABLE hardware_health (
    machine_id text        PRIMARY KEY REFERENCES machines,
    -- The BMC that said it; another one's word is not the machine's.
    endpoint   text        NOT NULL,
    read_at    timestamptz NOT NULL,
    -- baremetal.v1.HardwareHealth, as JSON.
    document   jsonb       NOT NULL
);

-- What the identify light of a machine is to be. No row: nobody has ordered anything.
CREATE TABLE identify_lights (
    machine_id text        PRIMARY KEY REFERENCES machines,
    lit        boolean     NOT NULL,
    ordered_by text        NOT NULL,
    ordered_at timestamptz NOT NULL
);
