package sim

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"time"
)

// recorderLimit bounds how long an effect waits for its recorder.
const recorderLimit = 30 * time.Second

// report sends the records to the recorder on a unix socket, one JSON object per line, and waits for a line "ok". A
// process that is killed in between sends them again at its next look; the recorder recognizes records by machine and
// number.
func report(socket string, records []EffectRecord) (err error) {
	conn, err := net.DialTimeout("unix", socket, recorderLimit)
	if err != nil {
		return fmt.Errorf("reach the recorder of effects: %w", err)
	}
	defer func() { err = errors.Join(err, conn.Close()) }()
	if err := conn.SetDeadline(time.Now().Add(recorderLimit)); err != nil {
		return fmt.Errorf("reach the recorder of effects: %w", err)
	}
	enc := json.NewEncoder(conn)
	answers := bufio.NewReader(conn)
	for _, r := range records {
		if err := enc.Encode(r); err != nil {
			return fmt.Errorf("report an effect: %w", err)
		}
		if answer, err := answers.ReadString('\n'); err != nil || answer != "ok\n" {
			return fmt.Errorf("report an effect: the recorder says %q: %w", answer, err)
		}
	}
	return nil
}
