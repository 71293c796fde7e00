package validate

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/types/known/timestamppb"

	baremetalv1 "github.com/ingot-metal/ingot/api/baremetal/v1"
	"github.com/ingot-metal/ingot/controller/domain/fleet"
	"github.com/ingot-metal/ingot/controller/domain/kind"
	"github.com/ingot-metal/ingot/controller/domain/workflow"
)

// maxTimeoutSeconds bounds a step: an operation must end.
const maxTimeoutSeconds = 24 * 3600

// The names of parameters, in Operation.params and in StartRunRequest.params.
const (
	ParamImage   = "image_ref"
	ParamMode    = "mode"
	ParamReboot  = "reboot"
	ParamTimeout = "timeout_seconds"
	ParamConfig  = "config"
	ParamPath    = "path"
	// ParamAgentless is "true" for a system without the agent.
	ParamAgentless = "agentless"
	// Of a test of the hardware: its tests are separated by commas.
	ParamTests    = "tests"
	ParamDuration = "duration_seconds"
	ParamMemory   = "memory_percent"
	ParamBytes    = "disk_bytes"
)

// param checks one value and puts it where the plan's steps look for it.
type param func(value string, in *kind.Inputs) error

// params of every type that runs steps on the machine; mode and reboot come from the type.
func paramsOf(t fleet.OperationType, path func(string) string) map[string]param {
	if fleet.Housekeeping(t) {
		return nil
	}
	out := map[string]param{
		ParamImage:     func(v string, in *kind.Inputs) error { return setImage(path(ParamImage), v, in) },
		ParamTimeout:   func(v string, in *kind.Inputs) error { return setTimeout(path(ParamTimeout), v, in) },
		ParamConfig:    func(v string, in *kind.Inputs) error { return setConfig(path(ParamConfig), v, in) },
		"reboot_mode":  func(v string, in *kind.Inputs) error { return setReboot(path("reboot_mode"), v, in) },
		"netboot_mode": func(v string, in *kind.Inputs) error { return setNetboot(path("netboot_mode"), v, in) },
	}
	switch t {
	case fleet.Reboot:
		out[ParamMode] = func(v string, in *kind.Inputs) error { return setReboot(path(ParamMode), v, in) }
	case fleet.Reimage:
		out[ParamPath] = func(v string, in *kind.Inputs) error {
			in.InstallerPath = v
			return OneOf(path(ParamPath), v, kind.InstallerPaths...)
		}
		out[ParamAgentless] = func(v string, in *kind.Inputs) error {
			in.Agentless = v == "true"
			return OneOf(path(ParamAgentless), v, "true", "false")
		}
	case fleet.TestHardware:
		for name, set := range testParams {
			out[name] = func(v string, in *kind.Inputs) error {
				if in.Test == nil {
					in.Test = &baremetalv1.TestHardware{}
				}
				if err := set(v, in.Test); err != nil {
					return Fault(path(name), "a whole number")
				}
				return kind.ValidateTest(in.Test, path)
			}
		}
	case fleet.Netboot:
		out[ParamMode] = func(v string, in *kind.Inputs) error { return setNetboot(path(ParamMode), v, in) }
		out[ParamReboot] = func(v string, _ *kind.Inputs) error { return OneOf(path(ParamReboot), v, "true", "false") }
	}
	return out
}

// testParams put the parameters of a test of the hardware where they belong.
var testParams = map[string]func(v string, t *baremetalv1.TestHardware) error{
	ParamTests: func(v string, t *baremetalv1.TestHardware) error {
		t.Tests = strings.Split(v, ",")
		return nil
	},
	ParamDuration: func(v string, t *baremetalv1.TestHardware) error {
		n, err := strconv.ParseInt(v, 10, 32)
		t.DurationSeconds = int32(n)
		return err
	},
	ParamMemory: func(v string, t *baremetalv1.TestHardware) error {
		n, err := strconv.ParseInt(v, 10, 32)
		t.MemoryPercent = int32(n)
		return err
	},
	ParamBytes: func(v string, t *baremetalv1.TestHardware) (err error) {
		t.DiskBytes, err = strconv.ParseInt(v, 10, 64)
		return err
	},
}

// TestParams writes a test of the hardware as the parameters of its operation.
func TestParams(t *baremetalv1.TestHardware) map[string]string {
	out := map[string]string{}
	if len(t.GetTests()) > 0 {
		out[ParamTests] = strings.Join(t.GetTests(), ",")
	}
	for name, n := range map[string]int64{ParamDuration: int64(t.GetDurationSeconds()),
		ParamMemory: int64(t.GetMemoryPercent()), ParamBytes: t.GetDiskBytes()} {
		if n != 0 {
			out[name] = strconv.FormatInt(n, 10)
		}
	}
	return out
}

// Params checks the parameters of an operation and returns the inputs of its steps. path names a parameter's field in
// the request. Empty values count as absent.
func Params(t fleet.OperationType, params map[string]string, path func(key string) string) (kind.Inputs, error) {
	var in kind.Inputs
	allowed := paramsOf(t, path)
	for _, k := range sorted(params) {
		set := allowed[k]
		if set == nil {
			return in, Fault(shown(path(k)), "%s takes no such parameter", t)
		}
		if params[k] == "" {
			continue
		}
		if err := set(params[k], &in); err != nil {
			return in, err
		}
	}
	return in, nil
}

func setImage(path, v string, in *kind.Inputs) error {
	in.ImageRef = v
	var f faults
	f.add(path, imageRef(v))
	return f.err()
}

func setTimeout(path, v string, in *kind.Inputs) error {
	n, err := strconv.ParseInt(v, 10, 32)
	if err != nil || n < 0 || n > maxTimeoutSeconds {
		return Fault(path, "0 to %d", maxTimeoutSeconds)
	}
	in.TimeoutSeconds = int32(n)
	return nil
}

func setReboot(path, v string, in *kind.Inputs) error {
	in.RebootMode = v
	return OneOf(path, v, "graceful", "force", "bmc")
}

func setNetboot(path, v string, in *kind.Inputs) error {
	in.NetbootMode = v
	return OneOf(path, v, "PXE", "HTTP", "DISK")
}

func setConfig(path, v string, in *kind.Inputs) error {
	c := &baremetalv1.NetReconfig{}
	if err := protojson.Unmarshal([]byte(v), c); err != nil {
		return Fault(path, "not a NetReconfig in JSON")
	}
	in.Config = c
	return NetReconfig(path, c)
}

// ConfigParam writes a configuration as the parameter ParamConfig holds it.
func ConfigParam(c *baremetalv1.NetReconfig) (string, error) {
	raw, err := protojson.MarshalOptions{UseProtoNames: true}.Marshal(c)
	if err != nil {
		return "", fmt.Errorf("serialize configuration: %w", err)
	}
	// protojson varies its white space on purpose; stored text must not vary.
	var b bytes.Buffer
	if err := json.Compact(&b, raw); err != nil {
		return "", fmt.Errorf("serialize configuration: %w", err)
	}
	return b.String(), nil
}

// Since checks a timestamp that a client sends.
func Since(path string, ts *timestamppb.Timestamp) error {
	if ts.CheckValid() != nil || ts.AsTime().Year() < 1970 {
		return Fault(path, "not a time from 1970 to 9999")
	}
	return nil
}

// WorkflowMode checks that a workflow of this kind has this mode. path names the mode's field.
func WorkflowMode(path string, k workflow.Kind, m baremetalv1.Workflow_Mode) (workflow.Mode, error) {
	mode := workflow.NoMode
	if m != baremetalv1.Workflow_MODE_UNSPECIFIED {
		mode = workflow.Mode(m.String())
	}
	switch {
	case workflow.Fits(k, mode):
		return mode, nil
	case k == workflow.Onboarding:
		return mode, Fault(path, "an onboarding has none")
	}
	return mode, Fault(path, "SOFT_RESET, REIMAGE, STORAGE_CLEANUP or FULL_DECOMMISSION")
}

// WorkflowParams reads what a workflow's parameters say to its steps; every attempt reads them again. path names the
// field of the parameters.
func WorkflowParams(path string, k workflow.Kind, params map[string]string) (kind.Inputs, error) {
	of := map[string]string{}
	key := func(p string) string { return path + "[" + p + "]" }
	for _, name := range sorted(params) {
		switch {
		case name == ParamImage || name == ParamTimeout:
			of[name] = params[name]
		case name == ParamPath && k == workflow.Onboarding:
			if err := OneOf(key(name), params[name], workflow.PathInstall, workflow.PathAdopt); err != nil {
				return kind.Inputs{}, err
			}
		default:
			return kind.Inputs{}, Fault(path,
				"%.64q is no parameter of it; image_ref, timeout_seconds, and path of an onboarding are", name)
		}
	}
	return Params(fleet.Onboard, of, key)
}
