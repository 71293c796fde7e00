package invariants

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"strings"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/reflection/grpc_reflection_v1"
	"google.golang.org/grpc/status"

	baremetalv1 "github.com/ingot-metal/ingot/api/baremetal/v1"
	enrollv1 "github.com/ingot-metal/ingot/api/enroll/v1"
	fleetv1 "github.com/ingot-metal/ingot/api/fleet/v1"
	"github.com/ingot-metal/ingot/controller"
	"github.com/ingot-metal/ingot/controller/config"
	"github.com/ingot-metal/ingot/internal/testkit"
)

func dialAddress(t *testing.T, ctl *controller.Controller, address string) *grpc.ClientConn {
	t.Helper()
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(ctl.RootPEM())
	conn, err := grpc.NewClient(address, grpc.WithTransportCredentials(credentials.NewTLS(&tls.Config{
		RootCAs: pool, ServerName: "127.0.0.1", MinVersion: tls.VersionTLS13,
	})))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := conn.Close(); err != nil {
			t.Error(err)
		}
	})
	return conn
}

// TestEachListenerServesItsOwn: services of another listener are not there for any caller; agents' calls are not even
// read without a certificate.
func TestEachListenerServesItsOwn(t *testing.T) {
	ctl, token := startController(t, &testkit.Buffer{})
	ctx := withToken(t, token)
	at := ctl.Addresses()
	calls := map[string]func(*grpc.ClientConn) error{
		"machines": func(c *grpc.ClientConn) error {
			_, err := baremetalv1.NewMachineServiceClient(c).ListMachines(ctx, &baremetalv1.ListMachinesRequest{})
			return err
		},
		"agents": func(c *grpc.ClientConn) error {
			_, err := fleetv1.NewAgentServiceClient(c).RotateAgentCert(ctx, &fleetv1.RotateAgentCertRequest{})
			return err
		},
		"enrolment": func(c *grpc.ClientConn) error {
			_, err := enrollv1.NewEnrollmentServiceClient(c).Enroll(ctx, &enrollv1.EnrollRequest{})
			return err
		},
	}
	for listener, c := range map[string]struct {
		address string
		want    map[string][]codes.Code
	}{
		"frontpage": {at.Frontpage, map[string][]codes.Code{"machines": {codes.OK}, "agents": {codes.Unimplemented},
			"enrolment": {codes.Unimplemented}}},
		"fleet": {at.Fleet, map[string][]codes.Code{"machines": {codes.Unavailable}, "agents": {codes.Unavailable},
			"enrolment": {codes.Unavailable}}},
		"enrolment": {at.Enrolment, map[string][]codes.Code{
			"machines": {codes.Unimplemented}, "agents": {codes.Unimplemented},
			"enrolment": {codes.InvalidArgument, codes.Unauthenticated},
		}},
	} {
		conn := dialAddress(t, ctl, c.address)
		for name, call := range calls {
			err := call(conn)
			found := false
			for _, code := range c.want[name] {
				found = found || status.Code(err) == code
			}
			if !found {
				t.Errorf("%s on the listener of %s: %v, want %v", name, listener, err, c.want[name])
			}
		}
	}
}

// TestReflectionIsOffUnlessAskedFor, and shows the frontpage's services where it is.
func TestReflectionIsOffUnlessAskedFor(t *testing.T) {
	for _, on := range []bool{false, true} {
		ctl, token := startController(t, &testkit.Buffer{}, func(c *config.Config) { c.Reflection = on })
		names, err := reflected(withToken(t, token), dialAddress(t, ctl, ctl.Addresses().Frontpage))
		switch {
		case !on && status.Code(err) != codes.Unimplemented:
			t.Errorf("reflection answers unasked: %v %v", names, err)
		case on && (err != nil || !strings.Contains(strings.Join(names, " "), "baremetal.v1.MachineService")):
			t.Errorf("reflection shows %v (%v)", names, err)
		}
	}
}

func reflected(ctx context.Context, conn *grpc.ClientConn) ([]string, error) {
	s, err := grpc_reflection_v1.NewServerReflectionClient(conn).ServerReflectionInfo(ctx)
	if err != nil {
		return nil, err
	}
	err = s.Send(&grpc_reflection_v1.ServerReflectionRequest{
		MessageRequest: &grpc_reflection_v1.ServerReflectionRequest_ListServices{ListServices: "*"},
	})
	if err != nil && !errors.Is(err, io.EOF) { // the receive returns its reason
		return nil, err
	}
	answer, err := s.Recv()
	if err != nil {
		return nil, err
	}
	var names []string
	for _, service := range answer.GetListServicesResponse().GetService() {
		names = append(names, service.GetName())
	}
	return names, nil
}

// TestUnitsAreInThePackage: the controller's unit reloads by SIGHUP, and each package brings its unit.
func TestUnitsAreInThePackage(t *testing.T) {
	for _, name := range []string{"ingot-controller", "ingot-agent", "ingot-site", "ingot-netbox-sync"} {
		unit := readFile(t, "deploy/systemd/"+name+".service")
		if !strings.Contains(unit, "[Service]") || !strings.Contains(readFile(t, "deploy/build-deb"), name+".service") {
			t.Errorf("%s has no unit in its package", name)
		}
	}
	if timer := readFile(t, "deploy/systemd/ingot-netbox-sync.timer"); !strings.Contains(timer, "[Timer]") ||
		!strings.Contains(readFile(t, "deploy/build-deb"), "ingot-netbox-sync.timer") {
		t.Error("ingot-netbox-sync has no timer in its package")
	}
	if unit := readFile(t, "deploy/systemd/ingot-controller.service"); !strings.Contains(unit,
		"\nExecReload=/bin/kill -HUP $MAINPID\n") {
		t.Error("reloading the controller does not send SIGHUP")
	}
}
