// Package client connects Go programs to a controller, and holds what every one of them needs besides the generated
// calls of baremetalv1: TLS and the bearer token, repeats of calls whose answer was lost, request ids that mean the
// work, Wait for the end of an operation, Watch for machines as they change, and a Reconciler that keeps its cursor in
// a file.
//
//	conn, err := client.Dial(client.Config{Server: "ingot.example.net:50051", CAFile: "ca.pem", TokenFile: "token"})
//	machines := baremetalv1.NewMachineServiceClient(conn)
//
// # What is repeated
//
// A connection of Dial repeats a call that may be sent twice while the controller is away, with the same body and so
// under the same request id. Each call that starts work takes one, which makes it such a call. The few that may not be
// sent twice are sent once (Repeatable), and their error says that the outcome is open.
//
// # Errors
//
// Switch on Reason, never on a message. An operation that ends without success is an *OperationError.
package client
