DROP TRIGGER inventories_named ON inventories;
DROP FUNCTION inventories_named();
DROP TRIGGER machines_named ON machines;
DROP FUNCTION machines_named();
DROP FUNCTION name_machine_by_inventory(text, jsonb);
DROP FUNCTION name_machine(machines);
DROP FUNCTION set_machine_names(text, text, text[], text[]);
DROP TABLE machine_names;
