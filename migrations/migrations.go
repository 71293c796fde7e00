// Package migrations holds the numbered schema changes of the controller's database, embedded.
package migrations

import "embed"

// Files holds NNNN_name.up.sql and NNNN_name.down.sql.
//
//go:embed *.sql
var Files embed.FS
