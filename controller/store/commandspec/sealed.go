package commandspec

import (
	"fmt"

	"google.golang.org/protobuf/proto"

	baremetalv1 "github.com/ingot-metal/ingot/api/baremetal/v1"
	fleetv1 "github.com/ingot-metal/ingot/api/fleet/v1"
	"github.com/ingot-metal/ingot/controller/domain/kind"
	"github.com/ingot-metal/ingot/controller/secret"
)

// Opened returns a specification as its executor takes it: with the secret arguments of a script, which are stored
// sealed. A specification without any is returned as it is.
func Opened(spec *fleetv1.CommandSpec, open func(sealed string) (string, error)) (*fleetv1.CommandSpec, error) {
	if len(spec.GetScript().GetSecretArgs()) == 0 {
		return spec, nil
	}
	out := proto.CloneOf(spec)
	a := out.GetScript()
	with := &baremetalv1.SshCommand{Args: a.Args, SecretArgs: a.GetSecretArgs()}
	if open == nil {
		return nil, fmt.Errorf("open the arguments of script %s: %w", a.GetScriptRef(), secret.ErrSealed)
	}
	if err := kind.MapSecretArgs(with, open); err != nil {
		return nil, fmt.Errorf("open the arguments of script %s: %w", a.GetScriptRef(), err)
	}
	return out, nil
}

// Sent returns the bytes of a stored specification as they are sent to its executor.
func Sent(stored []byte, open func(sealed string) (string, error)) ([]byte, error) {
	if !secret.HoldsArgument(stored) {
		return stored, nil
	}
	spec := &fleetv1.CommandSpec{}
	if err := proto.Unmarshal(stored, spec); err != nil {
		return nil, fmt.Errorf("parse stored command: %w", err)
	}
	opened, err := Opened(spec, open)
	if err != nil {
		return nil, err
	}
	return Serialize(opened)
}

// Serialize returns the bytes of a specification. The same content has the same bytes, whose digest a grant names.
func Serialize(spec *fleetv1.CommandSpec) ([]byte, error) {
	raw, err := proto.MarshalOptions{Deterministic: true}.Marshal(spec)
	if err != nil {
		return nil, fmt.Errorf("serialize command: %w", err)
	}
	return raw, nil
}
