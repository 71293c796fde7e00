package kind

import (
	"time"
)

// Inspect is published and not built.
const Inspect Kind = "inspect"

var inspect = Declaration{
	Kind:    Inspect,
	Step:    true,
	Harm:    Harmless,
	Timeout: 300 * time.Second,
	Retries: 2,
}
