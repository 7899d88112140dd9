package soap

import (
	"testing"

	"github.com/stretchr/testify/require"

	"trafficd/schemas/xroute"
)

func element(key, message string, context ...string) *xroute.StackElement {
	e := &xroute.StackElement{Message: &message, Context: context}
	if key != "" {
		e.ErrorKey = &key
	}
	return e
}

func TestFaultError(t *testing.T) {
	trace := "0af7"
	f := func(want string, x xroute.Exception, top *xroute.StackElement) {
		t.Helper()
		*x.Base() = xroute.BaseException{StackElement: top, TransactionID: &trace}
		require.Equal(t, want, (&Fault{Code: xroute.FaultClient, Exception: x}).Error())
	}
	top := element("REQUEST_INVALID_WKT", "the WKT cannot be used", "geometry", "WKT")
	top.Cause = element("", "cannot read WKT: byte 11: a number is missing.")
	top.Cause.Cause = element("", "byte 11: a number is missing")
	f("REQUEST_INVALID_WKT: the WKT cannot be used: cannot read WKT: byte 11: a number is missing (at geometry, WKT); check that the geometry is valid WKT (trace 0af7)",
		new(xroute.XServiceException), top)
	f("IllegalParameterException: too many points (trace 0af7)", new(xroute.IllegalParameterException), element("", "too many points"))
	f("UnexpectedException: no reason given; try again; if it recurs, report the trace ID (trace 0af7)", new(xroute.UnexpectedException), nil)
	require.Equal(t, "not a SOAP 1.1 envelope", (&Fault{Text: "not a SOAP 1.1 envelope"}).Error())
}

func TestReason(t *testing.T) {
	x := new(xroute.XServiceException)
	x.StackElement = element("CONVERT_COORDINATE_FORMAT", "outside the domain", "geometries[3]", "point[0]")
	require.Equal(t, "CONVERT_COORDINATE_FORMAT: outside the domain (at point[0]); check --format-from and --format-to of trafficctl geometry", Reason(x))
	require.Equal(t, []string{"geometries[3]", "point[0]"}, x.StackElement.Context, "unchanged")
}
