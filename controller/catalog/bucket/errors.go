package bucket

import (
	"context"
	"errors"
	"net/http"
	"slices"

	"github.com/minio/minio-go/v7"

	"github.com/ingot-metal/ingot/controller/catalog/blob"
	"github.com/ingot-metal/ingot/internal/failure"
)

// Codes of S3 (API Reference, "Error responses") that no further try changes, and those of a full store.
var (
	refusals = []string{
		"AccessDenied",
		"AllAccessDisabled",
		"AccountProblem",
		"AuthorizationHeaderMalformed",
		"ExpiredToken",
		"InvalidAccessKeyId",
		"InvalidBucketName",
		"InvalidToken",
		"NoSuchBucket",
		"PermanentRedirect",
		"RequestTimeTooSkewed",
		"SignatureDoesNotMatch",
		"MethodNotAllowed",
		"NotImplemented",
		"InvalidRegion",
	}
	fulls = []string{"QuotaExceeded", "XMinioStorageFull", "InsufficientStorage"}
)

// failed returns the typed error of a request, or nil.
func failed(ctx context.Context, doing, sha256 string, err error) error {
	if err == nil {
		return nil
	}
	if ctx.Err() != nil && !errors.Is(context.Cause(ctx), errStalled) {
		return context.Cause(ctx)
	}
	var typed *failure.Error
	if errors.As(err, &typed) {
		return err
	}
	answer := answerOf(err)
	switch {
	case answer.Code == "NoSuchKey":
		return blob.NotFound(sha256)
	case slices.Contains(fulls, answer.Code), answer.StatusCode == http.StatusInsufficientStorage:
		return blob.Full("the bucket is full: the service answers %s", answer.Code).Wrap(err)
	case slices.Contains(refusals, answer.Code):
		return failure.Precondition("IMAGE_STORE_REFUSED",
			"the bucket cannot be used, to %s it: the service answers %s", doing, answer.Code).Wrap(err)
	}
	return unavailable("the bucket's service does not answer as it should").Wrap(err)
}

// answerOf finds the service's answer in an error; its fields are empty where there was none.
func answerOf(err error) minio.ErrorResponse {
	var answer minio.ErrorResponse
	if errors.As(err, &answer) {
		return answer
	}
	return minio.ErrorResponse{}
}

func unavailable(format string, args ...any) *failure.Error {
	return failure.Unavailable("IMAGE_STORE_UNAVAILABLE", format, args...)
}

// wrong is an answer that cannot be believed.
func wrong(format string, args ...any) error { return unavailable(format, args...) }

func isNotFound(err error) bool { return failure.HasReason(err, "BLOB_NOT_FOUND") }

// isGone reports whether there is no such upload any more.
func isGone(err error) bool { return answerOf(err).Code == "NoSuchUpload" }

// isOutside reports whether a range is behind the end.
func isOutside(err error) bool {
	answer := answerOf(err)
	return answer.Code == "InvalidRange" || answer.StatusCode == http.StatusRequestedRangeNotSatisfiable
}
