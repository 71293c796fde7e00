// Package explain has the parts of a machine's explanation: the facts that the store gathers, the normal times, the
// starts that are on offer, and the explanation itself. Package rules makes one.
package explain
