// Package silence tests what Ingot reports while agents are silent: what their machines are is not known then.
package silence
