package storetest

import (
	"sync"

	"github.com/ingot-metal/ingot/controller/store"
	operationstore "github.com/ingot-metal/ingot/controller/store/operation"
)

// heard is what a controller around the store is told.
type heard struct {
	mu      sync.Mutex
	Created []string
	Applied []*operationstore.Applied
}

func Listen(s *store.Store) *heard {
	h := &heard{}
	s.OnCreated(func(id string) {
		h.mu.Lock()
		defer h.mu.Unlock()
		h.Created = append(h.Created, id)
	})
	s.OnApplied(func(a *operationstore.Applied) {
		h.mu.Lock()
		defer h.mu.Unlock()
		h.Applied = append(h.Applied, a)
	})
	return h
}

// Of gives the decisions that were told of an operation.
func (h *heard) Of(operationID string) (list []*operationstore.Applied) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, a := range h.Applied {
		if a.OperationID == operationID {
			list = append(list, a)
		}
	}
	return list
}
