// Package situation is what a decision about an operation is made of: the stored operation, its latest command and the
// world at one moment, with the facts that decisions ask of them. A Situation is read only. Whatever changes the
// operation makes a new one.
package situation
