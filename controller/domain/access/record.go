package access

import "time"

// Seen is a session that a call came from.
type Seen struct {
	Person  Person
	Address string
	At      time.Time
	// New is set when it is not recorded yet, as far as this controller knows.
	New bool
}

// Refusal is a number of calls that were refused for lack of rights: of one actor, from one address, of one method.
type Refusal struct {
	Actor, Address, Method string
	// Machine is the one that the first of the calls was about; empty where there was none.
	Machine string
	Count   int64
}

// RefusalBatch is a part of what one process has counted. A batch that is stored twice counts once.
type RefusalBatch struct {
	// Writer names the process, Number orders its batches from 1.
	Writer   string
	Number   int64
	Refusals []Refusal
}
