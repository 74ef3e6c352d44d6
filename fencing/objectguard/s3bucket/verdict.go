package s3bucket

import (
	"errors"
	"net/http"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/aws/retry"
	"github.com/aws/smithy-go"
	smithyhttp "github.com/aws/smithy-go/transport/http"

	"github.com/seed74116694/fencelock/fencing/objectguard"
)

// verdict returns what an error of a PUT proves. The write was not carried out, and is
//
//   - [objectguard.ErrConflict]: 412 if the condition does not hold, 409 if another write is under way, 404 for
//     If-Match if the object is gone;
//   - [objectguard.ErrRefused]: another 3xx or 4xx, or 501, unless the SDK would try it again (throttling, a request
//     that arrived too slowly).
//
// Any other error is nil. A 500, 502, 503 or 504 may come from a gateway that has passed the request on, so like a
// missing answer it proves nothing.
func verdict(err error) error {
	var response *smithyhttp.ResponseError
	if !errors.As(err, &response) {
		return nil
	}
	status := response.HTTPStatusCode()
	switch {
	case status == http.StatusPreconditionFailed, status == http.StatusConflict, gone(err):
		return objectguard.ErrConflict
	case status == http.StatusRequestTimeout, status == http.StatusTooManyRequests, worthwhile(err):
		return nil
	case 300 <= status && status < 500, status == http.StatusNotImplemented:
		return objectguard.ErrRefused
	}
	return nil
}

// gone reports whether there is no object to match. PutObject has no type for it.
func gone(err error) bool {
	var answer smithy.APIError
	return errors.As(err, &answer) && answer.ErrorCode() == "NoSuchKey"
}

// worthwhile reports whether the SDK would try again by default.
func worthwhile(err error) bool {
	return retry.IsErrorRetryables(retry.DefaultRetryables).IsErrorRetryable(err) == aws.TrueTernary
}
