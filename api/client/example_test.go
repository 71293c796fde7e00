package client_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"time"

	baremetalv1 "github.com/ingot-metal/ingot/api/baremetal/v1"
	"github.com/ingot-metal/ingot/api/client"
)

func ExampleDial() {
	conn, err := client.Dial(client.Config{
		Server: "ingot.example.net:50051", CAFile: "/etc/ingot/ca.pem", TokenFile: "/etc/ingot/token",
	})
	if err != nil {
		log.Fatal(err)
	}
	defer conn.Close()
	answer, err := baremetalv1.NewMachineServiceClient(conn).ListMachines(context.Background(),
		&baremetalv1.ListMachinesRequest{Filter: "state=ATTENTION,site in (berlin, paris)", OrderBy: "rack"})
	if err != nil {
		log.Fatal(err)
	}
	for _, m := range answer.GetMachines() {
		fmt.Println(m.GetMachineId(), m.GetStatus().GetAttentionMessage())
	}
}

// A request id that means the work makes it happen once, however often the program is started.
func ExampleWait() {
	conn, err := client.Dial(client.Config{Server: "ingot.example.net:50051", TokenFile: "token"})
	if err != nil {
		log.Fatal(err)
	}
	defer conn.Close()
	ctx, cancel := context.WithTimeout(context.Background(), 15*time.Minute)
	defer cancel()
	operation, err := baremetalv1.NewMachineServiceClient(conn).RebootMachine(ctx, &baremetalv1.RebootMachineRequest{
		MachineId: "m-1", RequestId: client.RequestID("kernel-6.1.99", "m-1"),
	})
	if client.Reason(err) == baremetalv1.Reason_MACHINE_BUSY {
		log.Fatal("something else is under way on the machine")
	}
	if err != nil {
		log.Fatal(err)
	}
	operation, err = client.Wait(ctx, conn, operation.GetOperationId(), func(e *baremetalv1.OperationEvent) {
		log.Print(e.GetKind(), " ", e.GetStep(), " ", e.GetMessage())
	})
	var failed *client.OperationError
	if errors.As(err, &failed) {
		log.Fatalf("%v; try again: %t", failed, failed.Retryable())
	}
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println("new boot id:", operation.GetEvidence()["boot_id_after"])
}

func ExampleWatch() {
	conn, err := client.Dial(client.Config{Server: "ingot.example.net:50051", TokenFile: "token"})
	if err != nil {
		log.Fatal(err)
	}
	defer conn.Close()
	watch := client.Watch{Conn: conn, Filter: "state=ATTENTION"}
	err = watch.Run(context.Background(), func(e *baremetalv1.MachineEvent) error {
		fmt.Println(e.GetKind(), e.GetMachine().GetMachineId())
		return nil
	})
	log.Fatal(err)
}

func ExampleReconciler() {
	conn, err := client.Dial(client.Config{Server: "ingot.example.net:50051", TokenFile: "token"})
	if err != nil {
		log.Fatal(err)
	}
	defer conn.Close()
	racks := map[string]string{}
	r := client.Reconciler{
		Conn: conn, CursorFile: "/var/lib/dcim/ingot-cursor", Every: 30 * time.Second,
		Apply: func(_ context.Context, m *baremetalv1.Machine) error {
			if m.GetDeletedAt() != nil {
				delete(racks, m.GetMachineId())
			} else {
				racks[m.GetMachineId()] = m.GetSpec().GetRack()
			}
			return nil
		},
		Walked: func(_ context.Context, ids map[string]bool) error {
			for id := range racks {
				if !ids[id] {
					delete(racks, id)
				}
			}
			return nil
		},
	}
	log.Fatal(r.Run(context.Background()))
}
