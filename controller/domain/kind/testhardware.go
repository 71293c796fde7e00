package kind

import (
	"fmt"
	"slices"
	"time"

	baremetalv1 "github.com/ingot-metal/ingot/api/baremetal/v1"
	"github.com/ingot-metal/ingot/internal/evidence"
)

// TestHardware tests the machine's hardware, and changes nothing.
const TestHardware Kind = "test_hardware"

var testHardware = Declaration{
	Kind:   TestHardware,
	Step:   true,
	Runs:   true,
	Action: "test_hardware",
	Check: func(s *baremetalv1.Step, path string) error {
		return ValidateTest(s.GetTestHardware(), func(name string) string { return path + "." + name })
	},
	Fill: func(s *baremetalv1.Step, in Inputs) error {
		fillTest(s.GetTestHardware(), in.Test)
		return nil
	},
	Least:      func(s *baremetalv1.Step) time.Duration { return TestDuration(s.GetTestHardware()) + testGrace },
	Harm:       Interrupts,
	Timeout:    600 * time.Second,
	Retries:    1,
	AsksHost:   true,
	Unfinished: "HARDWARE_TEST_UNFINISHED",
	Evidence:   evidence.HardwareTests,
	Started:    "Testing hardware",
	Done:       "Hardware tested",
	Doing:      "the hardware is being tested",
}

// The bounds of a test of the hardware.
const (
	defaultTestSeconds = 120
	maxTestSeconds     = 3600
	defaultTestMemory  = 50
	maxTestMemory      = 90
	defaultTestBytes   = 4 << 30
	// testGrace is what a test needs beside its time: a disk that does not answer is waited for.
	testGrace = 2 * time.Minute
)

// HardwareTests are the tests that there are.
var HardwareTests = []string{"nic", "cpu", "memory", "disk"}

// ValidateTest refuses a test that cannot be made. path names its fields in the request.
func ValidateTest(t *baremetalv1.TestHardware, path func(field string) string) error {
	for i, name := range t.GetTests() {
		if err := oneOf(path("tests"), name, HardwareTests); err != nil || name == "" ||
			slices.Contains(t.GetTests()[:i], name) {
			return Invalid("INVALID_FIELD", path("tests"), fmt.Sprintf("each once, of %q", HardwareTests))
		}
	}
	switch {
	case t.GetDurationSeconds() < 0 || t.GetDurationSeconds() > maxTestSeconds:
		return Invalid("INVALID_FIELD", path("duration_seconds"), fmt.Sprintf("0 to %d", maxTestSeconds))
	case t.GetMemoryPercent() < 0 || t.GetMemoryPercent() > maxTestMemory:
		return Invalid("INVALID_FIELD", path("memory_percent"), fmt.Sprintf("0 to %d", maxTestMemory))
	case t.GetDiskBytes() < 0:
		return Invalid("INVALID_FIELD", path("disk_bytes"), "0 or more")
	}
	return nil
}

// TestDuration is how long the tests may take.
func TestDuration(t *baremetalv1.TestHardware) time.Duration {
	if t.GetDurationSeconds() == 0 {
		return defaultTestSeconds * time.Second
	}
	return time.Duration(t.GetDurationSeconds()) * time.Second
}

// TestMemory is how much of the free memory is tested, in percent.
func TestMemory(t *baremetalv1.TestHardware) int32 {
	if t.GetMemoryPercent() == 0 {
		return defaultTestMemory
	}
	return t.GetMemoryPercent()
}

// TestBytes is how much of each disk is read at most.
func TestBytes(t *baremetalv1.TestHardware) int64 {
	if t.GetDiskBytes() == 0 {
		return defaultTestBytes
	}
	return t.GetDiskBytes()
}

// fillTest completes a step by what was asked for.
func fillTest(s, asked *baremetalv1.TestHardware) {
	if asked == nil {
		return
	}
	if len(s.GetTests()) == 0 {
		s.Tests = slices.Clone(asked.GetTests())
	}
	if s.GetDurationSeconds() == 0 {
		s.DurationSeconds = asked.GetDurationSeconds()
	}
	if s.GetMemoryPercent() == 0 {
		s.MemoryPercent = asked.GetMemoryPercent()
	}
	if s.GetDiskBytes() == 0 {
		s.DiskBytes = asked.GetDiskBytes()
	}
}
