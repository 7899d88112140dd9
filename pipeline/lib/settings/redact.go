package settings

import (
	"errors"
	"net/url"
	"regexp"
	"strings"
)

// Redact returns text in which the secrets in http and https URLs are replaced by mask: the
// password of the user and the values of the query, which may be tokens.
func Redact(text, mask string) string {
	return webURL.ReplaceAllStringFunc(text, func(u string) string {
		if mask == "" {
			u = password.ReplaceAllString(u, "$1@")
		} else {
			u = password.ReplaceAllString(u, "${1}:"+mask+"@")
		}
		return query.ReplaceAllStringFunc(u, func(q string) string {
			return parameter.ReplaceAllStringFunc(q, func(p string) string {
				if name, value, named := strings.Cut(p, "="); named && value == "" {
					return p
				} else if named {
					return name + "=" + mask
				}
				return p[:1] + mask // the separator
			})
		})
	})
}

// Mask is what replaces a secret in messages; net/url uses it, too.
const Mask = "xxxxx"

var (
	webURL   = regexp.MustCompile(`(?i)https?://[^\s"'<>` + "`" + `]+`)
	password = regexp.MustCompile(`^(\w+://[^/?#:@]*):[^/?#]*@`)
	query    = regexp.MustCompile(`\?[^#]*`)

	parameter = regexp.MustCompile(`[?&;][^&;]+`) // with its separator
)

// RedactURLError masks the secrets in the URL of an error of an HTTP client.
func RedactURLError(err error) error {
	if e, ok := errors.AsType[*url.Error](err); ok { // the copy of the caller
		e.URL = Redact(e.URL, Mask)
	}
	return err
}
