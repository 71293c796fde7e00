// Package recipes executes the recipes of CONTRIBUTING.md in copies of the tree.
//
// # Overview
//
// A recipe is a section "Add …" with numbered steps and the commands that end it. Its example has edits for each step.
// The test takes the steps, the files that they name and the commands from the page itself: an edit of a file that its
// step does not name fails, as does a step without an edit, or a command that fails. Where the page claims that the
// last command names a missing step, each step is also left out once, and the command must fail.
//
// It runs by `make test-recipes`, a check of a release: each run generates and compiles much of the tree.
package recipes
