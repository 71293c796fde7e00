package lab_test

import (
	"fmt"

	pb "github.com/ingot-metal/ingot/api/baremetal/v1"
	"github.com/ingot-metal/ingot/lab/metal"
)

func (s *site) stages(m *metal.Machine, op *pb.Operation) string {
	s.Helper()
	for _, c := range s.log(op) {
		fmt.Printf("LOG %s %s %s\n", c.GetTs().AsTime().Format("05.000"), c.GetStep(), c.GetData())
	}
	stream, err := s.api.Operations.WatchOperations(s.ctx, &pb.WatchOperationsRequest{Filter: "operation_id=" + op.GetOperationId(), FromBeginning: true})
	if err != nil {
		s.Fatal(err)
	}
	for {
		e, err := stream.Recv()
		if err != nil {
			s.Fatal(err)
		}
		fmt.Printf("EVENT %s %s %s %s %s\n", e.GetTs().AsTime().Format("05.000"), e.GetKind(), e.GetStep(), e.GetMessage(), e.GetSnapshot().GetWaitReason())
		if e.GetSnapshot().GetFinishedAt() != nil {
			break
		}
	}
	for _, c := range s.commands(op) {
		fmt.Printf("CMD %v\n", c)
	}
	return ""
}
