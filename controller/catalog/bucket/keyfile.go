package bucket

import (
	"bufio"
	"bytes"
	"fmt"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/minio/minio-go/v7/pkg/credentials"
)

// rereadAfter is how soon another access key in the file counts.
const rereadAfter = time.Minute

// keyFile reads the access key of a file in the form of ~/.aws/credentials, with one profile.
type keyFile struct {
	path string
	mu   sync.Mutex
	read time.Time
}

// Retrieve implements credentials.Provider.
func (k *keyFile) Retrieve() (credentials.Value, error) {
	v, err := readKeys(k.path)
	if err != nil {
		return v, fmt.Errorf("read images.bucket.credentials_file: %w", err)
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	k.read = time.Now()
	return v, nil
}

// RetrieveWithCredContext implements credentials.Provider.
func (k *keyFile) RetrieveWithCredContext(*credentials.CredContext) (credentials.Value, error) {
	return k.Retrieve()
}

// IsExpired implements credentials.Provider.
func (k *keyFile) IsExpired() bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return time.Since(k.read) > rereadAfter
}

func readKeys(path string) (v credentials.Value, err error) {
	info, err := os.Stat(path)
	if err != nil {
		return v, err
	}
	if info.Mode().Perm()&0o007 != 0 {
		return v, fmt.Errorf("%s can be read by everybody (mode %04o); make it 0600", path, info.Mode().Perm())
	}
	raw, err := os.ReadFile(path)
	if err != nil {
		return v, err
	}
	v.SignerType = credentials.SignatureV4
	lines := bufio.NewScanner(bytes.NewReader(raw))
	for n := 1; lines.Scan(); n++ {
		line := strings.TrimSpace(lines.Text())
		if line == "" || line[0] == '#' || line[0] == ';' || line[0] == '[' {
			continue
		}
		key, value, _ := strings.Cut(line, "=")
		into := map[string]*string{"aws_access_key_id": &v.AccessKeyID, "aws_secret_access_key": &v.SecretAccessKey,
			"aws_session_token": &v.SessionToken}[strings.ToLower(strings.TrimSpace(key))]
		switch {
		case into == nil:
			return v, fmt.Errorf("%s: line %d is none of aws_access_key_id, aws_secret_access_key, aws_session_token", path, n)
		case *into != "":
			return v, fmt.Errorf("%s: line %d gives a value again: one profile alone", path, n)
		}
		*into = strings.TrimSpace(value)
	}
	if err := lines.Err(); err != nil {
		return v, err
	}
	if v.AccessKeyID == "" || v.SecretAccessKey == "" {
		return v, fmt.Errorf("%s lacks aws_access_key_id or aws_secret_access_key", path)
	}
	return v, nil
}
