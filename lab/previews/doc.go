// Package previews tests on random fleets that a preview and the work that it is of give the same answer.
package previews
