DROP TRIGGER machines_depart ON machines;
DROP FUNCTION machine_departs();
DROP FUNCTION in_selections(jsonb, text, jsonb, jsonb, text);
DROP FUNCTION selectable_spec(jsonb);
ALTER TABLE cluster_state DROP COLUMN departures_since;
ALTER TABLE cluster_state DROP COLUMN departures_through;
DROP TABLE machine_departures;
