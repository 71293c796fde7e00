package dbsqlc

// Handle is what the queries run on: the pool, or a transaction.
func (q *Queries) Handle() DBTX { return q.db }
