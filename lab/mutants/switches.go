package main

import (
	"fmt"
	"strings"
)

const (
	// variable names the mutant that is on.
	variable = "INGOT_MUTANT"
	// traceVariable names the file that collects the mutants that were reached.
	traceVariable = "INGOT_MUTANTS_REACHED"
)

// switches is the file that each mutated package is given.
func switches(name string, highest int) string {
	return strings.NewReplacer("PACKAGE", name, "HIGHEST", fmt.Sprint(highest), "VARIABLE", variable, "TRACE", traceVariable).Replace(`package PACKAGE

import (
	"cmp"
	"os"
	"strconv"
	"sync/atomic"
)

var mutantActive = func() int { n, _ := strconv.Atoi(os.Getenv("VARIABLE")); return n }()

var mutantTrace = func() *os.File {
	path := os.Getenv("TRACE")
	if path == "" {
		return nil
	}
	f, err := os.OpenFile(path, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		panic(err)
	}
	return f
}()

var mutantReached [HIGHEST + 1]atomic.Bool

func mutantOn(n int) bool {
	if mutantTrace != nil && !mutantReached[n].Swap(true) {
		mutantTrace.WriteString("PACKAGE " + strconv.Itoa(n) + "\n")
	}
	return n == mutantActive
}

func mutantLess[T cmp.Ordered](n int, a, b T) bool      { return a < b || a == b && mutantOn(n) }
func mutantLessEqual[T cmp.Ordered](n int, a, b T) bool { return a < b || a == b && !mutantOn(n) }
func mutantMore[T cmp.Ordered](n int, a, b T) bool      { return a > b || a == b && mutantOn(n) }
func mutantMoreEqual[T cmp.Ordered](n int, a, b T) bool { return a > b || a == b && !mutantOn(n) }

type mutantNumber interface {
	~int | ~int8 | ~int16 | ~int32 | ~int64 | ~uint | ~uint8 | ~uint16 | ~uint32 | ~uint64 | ~uintptr | ~float32 | ~float64
}

func mutantAdd[T mutantNumber](n int, a, b T) T {
	if mutantOn(n) {
		return a - b
	}
	return a + b
}

func mutantSubtract[T mutantNumber](n int, a, b T) T {
	if mutantOn(n) {
		return a + b
	}
	return a - b
}

func mutantMultiply[T mutantNumber](n int, a, b T) T {
	if mutantOn(n) {
		return a / b
	}
	return a * b
}

func mutantDivide[T mutantNumber](n int, a, b T) T {
	if mutantOn(n) {
		return a * b
	}
	return a / b
}

func mutantUp[T mutantNumber](n int, v T) T {
	if mutantOn(n) {
		v++
	}
	return v
}

func mutantDown[T mutantNumber](n int, v T) T {
	if mutantOn(n) {
		v--
	}
	return v
}

func mutantError(n int, err error) error {
	if mutantOn(n) {
		return nil
	}
	return err
}

func mutantZero[T any](n int, v T) T {
	if mutantOn(n) {
		var zero T
		return zero
	}
	return v
}

func mutantText[T ~string](n int, v T) T {
	if mutantOn(n) {
		return v + "\x00"
	}
	return v
}

func mutantNumberCase[T ~int | ~int8 | ~int16 | ~int32 | ~int64 | ~uint | ~uint8 | ~uint16 | ~uint32 | ~uint64](n int, v T) T {
	if mutantOn(n) {
		return ^v
	}
	return v
}
`)
}
