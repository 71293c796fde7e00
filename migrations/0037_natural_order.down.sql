DROP COLLATION natural_order;
