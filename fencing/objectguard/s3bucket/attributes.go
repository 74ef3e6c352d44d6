package s3bucket

import (
	"net/http"
	"strings"

	"github.com/aws/aws-sdk-go-v2/service/s3"
)

// metaPrefix is the prefix of the headers with the user's metadata.
const metaPrefix = "x-amz-meta-"

// attributesOf returns the properties of an object that a GET returns and a PUT replaces, by the names of their
// headers.
func attributesOf(output *s3.GetObjectOutput) map[string]string {
	attributes := map[string]string{}
	for name, value := range map[string]*string{
		"Content-Type":        output.ContentType,
		"Content-Encoding":    output.ContentEncoding,
		"Content-Language":    output.ContentLanguage,
		"Content-Disposition": output.ContentDisposition,
		"Cache-Control":       output.CacheControl,
		"Expires":             output.ExpiresString,
	} {
		if value != nil {
			attributes[name] = *value
		}
	}
	for name, value := range output.Metadata {
		attributes[metaPrefix+name] = value
	}
	return attributes
}

// setAttributes is the inverse of attributesOf.
func setAttributes(input *s3.PutObjectInput, attributes map[string]string) {
	fields := map[string]**string{
		"Content-Type":        &input.ContentType,
		"Content-Encoding":    &input.ContentEncoding,
		"Content-Language":    &input.ContentLanguage,
		"Content-Disposition": &input.ContentDisposition,
		"Cache-Control":       &input.CacheControl,
	}
	input.Metadata = map[string]string{}
	for name, value := range attributes {
		if field, ok := fields[name]; ok {
			*field = &value
		} else if name, ok := strings.CutPrefix(name, metaPrefix); ok {
			input.Metadata[name] = value
		}
	}
	if at, err := http.ParseTime(attributes["Expires"]); err == nil {
		input.Expires = &at
	}
}
