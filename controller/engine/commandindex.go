package engine

import (
	"sync"

	operationstore "github.com/ingot-metal/ingot/controller/store/operation"
)

// commandIndex maps commands to their operations, which never changes. A request for a grant and a first result then
// need not ask the database. For a command without an entry the database is asked.
type commandIndex struct {
	mu sync.Mutex
	// young is filled; then it becomes old and what was old is forgotten.
	young, old map[string]string
}

// placesAtMost bounds each half.
const placesAtMost = 10_000

// note remembers the command of a decision while something is to be heard of it.
func (p *commandIndex) note(a *operationstore.Applied) {
	if len(a.Send) == 0 {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, o := range a.Send {
		if len(p.young) >= placesAtMost {
			p.old, p.young = p.young, nil
		}
		if p.young == nil {
			p.young = map[string]string{}
		}
		p.young[o.CommandID] = a.OperationID
	}
}

// of returns the operation of a command, empty where it is not known.
func (p *commandIndex) of(commandID string) string {
	p.mu.Lock()
	defer p.mu.Unlock()
	if id := p.young[commandID]; id != "" {
		return id
	}
	return p.old[commandID]
}

// take is of for the last time.
func (p *commandIndex) take(commandID string) string {
	p.mu.Lock()
	defer p.mu.Unlock()
	id := p.young[commandID]
	if id == "" {
		id = p.old[commandID]
	}
	delete(p.young, commandID)
	delete(p.old, commandID)
	return id
}
