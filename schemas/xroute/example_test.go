package xroute_test

import (
	"errors"
	"fmt"
	"strings"

	"trafficd/schemas/xroute"
)

const request = `<Envelope xmlns="http://schemas.xmlsoap.org/soap/envelope/" xmlns:xsi="http://www.w3.org/2001/XMLSchema-instance">
<Body><convertGeometry xmlns="urn:xserver:routing" xmlns:c="urn:xserver:common">
<geometry xsi:type="c:Point" wkt="POINT (8.25 48.75)"/>
<options %s="OG_GEODECIMAL"><wrappedResponseGeometry xsi:nil="true"/></options>
</convertGeometry></Body></Envelope>`

func Example() {
	r, err := xroute.ReadRequest(strings.NewReader(fmt.Sprintf(request, "coordFormat")), xroute.DefaultLimits())
	if err != nil {
		fmt.Println(err)
		return
	}
	switch r := r.(type) {
	case *xroute.ConvertGeometry:
		fmt.Printf("%T %s, in %s\n", r.Geometry, *r.Geometry.Encoded().WKT, r.Options.CoordFormat)
	default:
		fmt.Printf("%T\n", r)
	}
	// Output: *xroute.Point POINT (8.25 48.75), in OG_GEODECIMAL
}

// An invalid envelope becomes a fault.
func ExampleError() {
	_, err := xroute.ReadRequest(strings.NewReader(fmt.Sprintf(request, "format")), xroute.DefaultLimits())
	wrong, ok := errors.AsType[*xroute.Error](err)
	if !ok || wrong.Kind != xroute.KindMissing {
		fmt.Println("unexpected error:", err)
		return
	}
	key := wrong.Path
	x := &xroute.ParameterNotSetException{}
	x.StackElement = &xroute.StackElement{ErrorKey: &key}
	text, err := xroute.AppendMessage(nil, &xroute.Fault{Code: xroute.FaultClient, Text: wrong.Error(), Exception: x})
	fmt.Println(err, strings.Contains(string(text), `<e:ParameterNotSetException xsi:type="e:ParameterNotSetException"><e:stackElement errorKey=`))
	fmt.Println(wrong)
	// Output:
	// <nil> true
	// Envelope/Body/convertGeometry/options/@coordFormat: required attribute is missing
}
