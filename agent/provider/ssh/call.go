package ssh

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"golang.org/x/crypto/ssh"

	"github.com/ingot-metal/ingot/internal/failure"
)

// maxAnswer bounds what a machine can make us keep.
const maxAnswer = 128 << 10

// errCut: the connection ended before the answer, so that the effect is unknown.
var errCut = errors.New("the connection was cut")

// call runs a constant text with data on its standard input, and returns its output.
func (c *Client) call(ctx context.Context, limit time.Duration, text string, in io.Reader) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	stop := context.AfterFunc(ctx, func() { _ = c.conn.Close() }) // which ends a waiting call
	defer stop()
	s, err := c.conn.NewSession()
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errCut, err)
	}
	defer s.Close() //nolint:errcheck // it has ended, or its connection has
	var out bounded
	s.Stdin, s.Stdout = in, &out
	err = s.Run(remote(text))
	var exit *ssh.ExitError
	switch {
	case err == nil:
		return out.b.Bytes(), nil
	case errors.As(err, &exit) && exit.Signal() == "":
		return nil, refusal(exit.ExitStatus())
	}
	return nil, fmt.Errorf("%w: %w", errCut, err)
}

// refusal returns the error of an exit code of the texts.
func refusal(code int) error {
	why := map[int]string{
		codeInput:     "what was sent came in damaged",
		codeDirectory: "the directory of runs could not be made",
		codeStorage:   "the script could not be written to the machine",
		codeSetsid:    "the machine has no setsid(1), which util-linux and busybox have",
		codeInterp:    "the script's interpreter is not on the machine",
		codeNothing:   "the script is not on the machine",
	}[code]
	if why == "" {
		why = fmt.Sprintf("the machine's shell ended with code %d", code)
	}
	return failure.Precondition("EXECUTION_FAILED", "%s", why)
}

// bounded keeps the beginning.
type bounded struct{ b bytes.Buffer }

// Write takes everything and keeps what there is room for.
func (w *bounded) Write(p []byte) (int, error) {
	w.b.Write(p[:min(len(p), maxAnswer-w.b.Len())])
	return len(p), nil
}
