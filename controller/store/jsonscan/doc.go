// Package jsonscan reads the flat JSON objects that Postgres writes for labels and specs, faster than a decoder.
package jsonscan
