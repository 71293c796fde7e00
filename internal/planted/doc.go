// Package planted names the protections that a fault harness takes away one at a time, to see whether it notices. In
// every ordinary build they are constants: nothing can switch them. Only a build with the tag "planted" has them as
// variables, set by INGOT_PLANTED; such a build destroys machines and is never shipped.
// The agent's sources and the controller's, but for its store and the rules of operations, hold no switch: package
// lab/chaos edits them for that build.
package planted
