package trial

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"sync"

	"github.com/ingot-metal/ingot/internal/task"
)

// Record is the recorder's process: it appends every line that comes over the socket to the file, and answers each with
// "ok" once it is there. It lives until it is killed.
func Record(socket, file string) error {
	f, err := os.OpenFile(file, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
	if err != nil {
		return fmt.Errorf("open the record: %w", err)
	}
	l, err := net.Listen("unix", socket)
	if err != nil {
		return errors.Join(fmt.Errorf("open the recorder's socket: %w", err), f.Close())
	}
	var mu sync.Mutex
	for {
		conn, err := l.Accept()
		if err != nil {
			return errors.Join(fmt.Errorf("accept: %w", err), f.Close())
		}
		task.Background("record", func() {
			defer conn.Close()
			if err := take(conn, f, &mu); err != nil {
				fmt.Fprintln(os.Stderr, "recorder:", err)
			}
		})
	}
}

func take(conn net.Conn, f io.Writer, mu *sync.Mutex) error {
	lines := bufio.NewReader(conn)
	for {
		line, err := lines.ReadBytes('\n')
		if errors.Is(err, io.EOF) {
			return nil // a sender that was killed in the middle of a line sends it again
		}
		if err != nil {
			return err
		}
		mu.Lock()
		_, err = f.Write(line)
		mu.Unlock()
		if err != nil {
			return err
		}
		if _, err := io.WriteString(conn, "ok\n"); err != nil {
			return nil // killed; it asks again
		}
	}
}
