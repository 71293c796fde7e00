package bucket

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"time"

	"github.com/minio/minio-go/v7"

	"github.com/ingot-metal/ingot/internal/doctor"
	"github.com/ingot-metal/ingot/internal/when"
)

const (
	// mostSkew is far from the 15 minutes at which S3 refuses, and more than an answer takes.
	mostSkew = time.Minute
	// checkTime bounds all checks.
	checkTime = 20 * time.Second
)

// skewed notes how far the service's clock is ahead of ours, by the Date of its answers.
type skewed struct {
	http.RoundTripper
	mu    sync.Mutex
	ahead time.Duration
}

// RoundTrip implements http.RoundTripper.
func (s *skewed) RoundTrip(r *http.Request) (*http.Response, error) {
	resp, err := s.RoundTripper.RoundTrip(r)
	if err != nil {
		return resp, err
	}
	if at, ok := when.HTTP(resp.Header.Get("Date")); ok {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.ahead = time.Until(at)
	}
	return resp, nil
}

// Check looks whether the bucket can be listed, read, written and removed from. It writes an upload that it ends, so
// that no object ever appears.
func (b *Bucket) Check(ctx context.Context) []doctor.Finding {
	ctx, cancel := context.WithTimeout(ctx, checkTime)
	defer cancel()
	for _, step := range []struct {
		to string
		do func(context.Context, string) error
	}{
		{"list", b.tryList}, {"read from", b.tryRead}, {"write to", b.tryWrite}, {"remove from", b.tryRemove},
	} {
		if err := step.do(ctx, b.cfg.Prefix+"doctor-"+rand.Text()); err != nil {
			return append([]doctor.Finding{b.fault(step.to, err)}, b.clock()...)
		}
	}
	well := doctor.Well(
		"bucket",
		b.where()+" can be listed, read, written and removed from; how full it is, its own tools say",
	)
	return append([]doctor.Finding{well}, b.clock()...)
}

func (b *Bucket) where() string { return b.cfg.Name + "/" + b.cfg.Prefix + " at " + b.cfg.Host }

func (b *Bucket) tryList(ctx context.Context, _ string) error {
	ctx, cancel := context.WithCancel(ctx) // ends the lister
	defer cancel()
	first := <-b.core.Client.ListObjects(ctx, b.cfg.Name, minio.ListObjectsOptions{Prefix: b.cfg.Prefix, MaxKeys: 1})
	return first.Err
}

// tryRead asks for an object that is not there. Without the right to read, the answer is another one.
func (b *Bucket) tryRead(ctx context.Context, probe string) error {
	_, err := b.core.StatObject(ctx, b.cfg.Name, probe, minio.StatObjectOptions{})
	if answerOf(err).Code == "NoSuchKey" {
		return nil
	}
	return err
}

func (b *Bucket) tryWrite(ctx context.Context, probe string) error {
	id, err := b.core.NewMultipartUpload(ctx, b.cfg.Name, probe, minio.PutObjectOptions{})
	if err != nil {
		return err
	}
	content := []byte("written by ingot-controller doctor")
	_, err = b.core.PutObjectPart(ctx, b.cfg.Name, probe, id, 1, bytes.NewReader(content), int64(len(content)),
		minio.PutObjectPartOptions{})
	return errors.Join(err, b.core.AbortMultipartUpload(ctx, b.cfg.Name, probe, id))
}

// tryRemove removes an object that is not there, which is no error where one may.
func (b *Bucket) tryRemove(ctx context.Context, probe string) error {
	err := b.core.RemoveObject(ctx, b.cfg.Name, probe, minio.RemoveObjectOptions{})
	if answerOf(err).Code == "NoSuchKey" {
		return nil
	}
	return err
}

func (b *Bucket) clock() []doctor.Finding {
	b.skewed.mu.Lock()
	ahead := b.skewed.ahead
	b.skewed.mu.Unlock()
	if ahead.Abs() <= mostSkew {
		return nil
	}
	return []doctor.Finding{doctor.Warning("bucket", "the service's clock differs by "+ahead.Round(time.Second).String()+
		"; at 15 minutes it refuses every request", "a time service on both: apt install chrony")}
}

// remedies by the code of the service's answer.
var remedies = map[string]string{
	"NoSuchBucket":          "make the bucket, or correct images.bucket.name",
	"InvalidAccessKeyId":    "correct aws_access_key_id in images.bucket.credentials_file",
	"SignatureDoesNotMatch": "correct aws_secret_access_key in images.bucket.credentials_file",
	"AccessDenied": "let the key do s3:ListBucket there, with its objects s3:GetObject, s3:PutObject, s3:DeleteObject, " +
		"s3:AbortMultipartUpload",
	"RequestTimeTooSkewed": "set the clocks: apt install chrony on both",
}

func (b *Bucket) fault(to string, err error) doctor.Finding {
	answer := answerOf(err)
	remedy, known := remedies[answer.Code]
	switch {
	case answer.Code == "":
		remedy = "curl -v to images.bucket.endpoint; then images.bucket.ca_file, the name server, the firewall, the service"
	case !known:
		remedy = "the service's manual says what " + answer.Code + " means; then correct images.bucket"
	}
	return doctor.Fault("bucket", fmt.Sprintf("cannot %s %s: %v %s", to, b.where(), err, answer.Code), remedy)
}
