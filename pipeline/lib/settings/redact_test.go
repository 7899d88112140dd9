package settings

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestRedact(t *testing.T) {
	f := func(text, want, empty string) {
		t.Helper()
		require.Equal(t, want, Redact(text, Mask))
		require.Equal(t, empty, Redact(text, ""))
	}
	same := func(text string) { t.Helper(); f(text, text, text) }
	same("")
	same("SELECT a?b=c")
	same("db:9000")
	same("https://host:8080/list#top")
	same("https://user@host/list")
	f("https://user:p@ss:word@host/list", "https://user:xxxxx@host/list", "https://user@host/list")
	f("HTTPS://host/list?token=S&format=json#top", "HTTPS://host/list?token=xxxxx&format=xxxxx#top", "HTTPS://host/list?token=&format=#top")
	f("http://host?S", "http://host?xxxxx", "http://host?")
	f("http://host/?a=b=c&&d=?e&f=", "http://host/?a=xxxxx&&d=xxxxx&f=", "http://host/?a=&&d=&f=")
	f("http://host/%zz?token=S", "http://host/%zz?token=xxxxx", "http://host/%zz?token=")
	f(`Get "http://u:p@h/x?k=v": EOF; see https://h/y?k=v`, `Get "http://u:xxxxx@h/x?k=xxxxx": EOF; see https://h/y?k=xxxxx`,
		`Get "http://u@h/x?k=": EOF; see https://h/y?k=`)
}
