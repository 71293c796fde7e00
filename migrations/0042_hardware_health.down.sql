DROP TABLE identify_lights;
DROP TABLE hardware_health;
