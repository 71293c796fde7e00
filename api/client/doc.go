// Package client connects Go programs to a controller, and holds what every one of them needs besides the generated
// calls of baremetalv1: TLS and the bearer token, repeats of calls whose answer was lost, and request ids that identify
// the work. Wait waits for the end of an operation, Watch follows machines as they change, and a Reconciler keeps its
// cursor in a file.
//
//	conn, err := client.Dial(client.Config{Server: "ingot.example.net:50051", CAFile: "ca.pem", TokenFile: "token"})
//	machines := baremetalv1.NewMachineServiceClient(conn)
//
// # Repeats
//
// While the controller is away, a connection of Dial repeats a call that may be sent twice. It sends the same body, and
// so the same request id. Each call that starts work takes one, which makes it such a call. The few that may not be
// sent twice are sent once (Repeatable), and their error reports an open outcome.
//
// # Errors
//
// Switch on Reason, never on a message. An operation that ends without success is an *OperationError.
package client
