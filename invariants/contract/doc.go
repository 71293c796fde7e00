// Package contract holds the rules of the public API that its descriptors and protos can be judged by.
package contract
