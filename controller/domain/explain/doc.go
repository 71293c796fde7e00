// Package explain is what an explanation of a machine is made of: the facts that the store gathers, what is normal, the
// starts that are on offer, and the explanation itself. Package rules makes one.
package explain
