DROP INDEX machines_of_maas;
