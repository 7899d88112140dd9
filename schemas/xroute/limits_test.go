package xroute

import (
	"runtime"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestLimits(t *testing.T) {
	f := func(limits Limits, reason, text string) {
		t.Helper()
		_, err := ReadRequest(strings.NewReader(text), limits)
		if reason == "" {
			require.NoError(t, err)
			return
		}
		var wrong *Error
		require.ErrorAs(t, err, &wrong)
		require.Equal(t, KindLimit, wrong.Kind)
		require.Contains(t, wrong.Reason, reason)
	}
	size := int64(len(pointText))
	f(Limits{Bytes: size}, "", pointText)
	f(Limits{Bytes: size - 1}, "the limit is "+strconv.FormatInt(size-1, 10)+" bytes: send less", pointText)
	f(Limits{Bytes: size}, "bytes", pointText+" ")
	f(Limits{Bytes: size}, "bytes", "<!--"+pointText)
	f(Limits{Bytes: size}, "bytes", `<a b="`+strings.Repeat("x", len(pointText)))
	require.Equal(t, DefaultLimits(), Limits{}.withDefaults())

	f(Limits{Depth: 6}, "", pointText)
	f(Limits{Depth: 5}, "5 nested elements", pointText)
	f(Limits{}, "64 nested elements", replace(t, "<c:point ", strings.Repeat("<a>", 100)+"<c:point "))

	f(Limits{Attributes: 5}, "", pointText)
	f(Limits{Attributes: 4}, "4 namespaces in scope", pointText)
	f(Limits{Attributes: 1}, "1 attributes per element", pointText)
	f(Limits{}, "64 attributes per element", "<a"+numbered(` a%="1"`, 100))
	f(Limits{}, "64 attributes per element", "<a"+numbered(` a%='1'`, 100))
	f(Limits{}, "64 namespaces in scope", replace(t, "<c:point ", numbered(`<a xmlns:p%="urn:p">`, 61)+"<c:point "))
	// Text that looks like attributes does not count.
	quotes := strings.Repeat(`a="1" b='2' `, 200)
	f(Limits{}, "", replace(t, "POINT", strings.Repeat("a='1' ", 200)))
	f(Limits{}, "", replace(t, "<c:point ", "<a><!--"+quotes+"--> <![CDATA["+quotes+"]]> "+quotes+"</a><c:point "))
	// Quotes and angle brackets before a tag do not hide its attributes.
	bomb := "<a" + numbered(` a%="1"`, 100)
	f(Limits{}, "64 attributes", replace(t, "<c:point ", "<a><![CDATA[> < ']]>"+bomb))
	f(Limits{}, "64 attributes", replace(t, "<c:point ", "<!--> < ' -->"+bomb))
	f(Limits{}, "64 attributes", replace(t, "<c:point ", `<a b=">'" c='"'/>`+bomb))
	f(Limits{}, "64 attributes", replace(t, "<c:point ", "<a>it's &apos; '"+bomb))
	f(Limits{}, "64 attributes", replace(t, "<c:point ", "<a></a >"+bomb))
}

// numbered repeats a text n times, with the index of the repetition in place of %.
func numbered(text string, n int) string {
	var b strings.Builder
	for i := range n {
		b.WriteString(strings.ReplaceAll(text, "%", strconv.Itoa(i)))
	}
	return b.String()
}

// TestMemory checks that small envelopes crafted to exhaust memory cause only bounded allocations.
func TestMemory(t *testing.T) {
	const limit = 1 << 18
	f := func(text string) {
		t.Helper()
		require.Greater(t, len(text), limit*9/10, "the envelope must almost reach the limit")
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		_, err := ReadRequest(strings.NewReader(text), Limits{Bytes: limit})
		runtime.ReadMemStats(&after)
		require.Error(t, err)
		require.Less(t, after.TotalAlloc-before.TotalAlloc, uint64(32*limit), "total of all allocations, most of which are garbage")
	}
	inside := func(text string) string {
		return pointText[:strings.Index(pointText, "<c:point")] + strings.Repeat(text, limit/len(text)+1)
	}
	f("<a" + strings.Repeat(` a=""`, limit/5))
	f(inside("<a/>"))
	f(inside("<a>"))
	f(inside("x<!---->"))
	f(inside("<![CDATA[]]>"))
	f(inside(`<a xmlns:a=""/>`))
	f(inside(`<a xmlns:a="b"/>`))
	f(pointText[:strings.Index(pointText, "<c:GeometryEncoding>WKB")] + strings.Repeat("<c:GeometryEncoding>WKB</c:GeometryEncoding>", limit/40))
	f(pointText[:strings.Index(pointText, "WKB<")] + strings.Repeat("x<!---->", limit/8))
	f(strings.ReplaceAll(pointText, "POINT", strings.Repeat("POINT", limit/5)))
	f("<!--" + strings.Repeat("x", limit))
}
