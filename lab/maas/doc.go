// Package maas tests whole lives of machines against a MAAS region, under every fault at every request.
//
// # Overview
//
// A flow is what a workflow or a plan does at MAAS: its stages come from controller/domain/workflow and
// controller/domain/plan, its commands are executed by agent/executor/provideraction, and the region is maastest, which
// is made after MAAS's source. Beside them is an operator who takes the action that is recommended, and mends what the
// message names.
//
// Each run has one fault at one request, or a few at random. The test checks that no foreign machine is changed, and
// that an operation deploys and erases once at most. Evidence of an erasure must be of one that was done, and the flow
// must end.
//
// # Short and long
//
// `make test` runs every fault of the requests that lose data in three flows, and a part of all others; `make
// test-maas` runs them all.
package maas
