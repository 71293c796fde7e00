package engine

import "context"

// Tidy makes one look at what has grown old.
func (e *Engine) Tidy(ctx context.Context) error { return e.tidy(ctx) }
