// Package judge decides whether Ingot's reports of a system that was broken are true: the explanations of its machines
// and operations. They are compared with the record of effects, the record of faults and the world as it was in the
// end. It is pure: an old record can be judged again by a newer judge.
//
// # What must have been true
//
// Each rule of an explanation, each reason and each fact has a judgement that names what must have been true. One that
// has none is a violation of its own, so that the judge cannot pass because it did not look.
//
// # Time
//
// Faults and questions carry the time since the beginning by one monotonic clock. Operations and commands carry the
// database's time, whose clock no fault steps. The times of effects come from agents whose clocks are stepped, and
// prove nothing.
package judge
