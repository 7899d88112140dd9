package routing

import (
	"fmt"
	"strings"

	"github.com/valyala/fasthttp"

	"trafficd/schemas/contract"
	"trafficd/schemas/xroute"
)

// describe answers a GET: with the WSDL, or with what to do.
func (s *Service) describe(ctx *fasthttp.RequestCtx) error {
	if !asksForWSDL(ctx.QueryArgs()) {
		return contract.NewError(contract.NotFound, "this is a SOAP service: its description is at "+Path+"?WSDL, and requests are sent by POST")
	}
	ctx.SetContentType("text/xml; charset=utf-8")
	ctx.SetBody(xroute.WSDL(s.address(ctx), "")) // the schemas stand beside it
	return nil
}

// asksForWSDL takes the word in any case: toolkits send ?wsdl and ?WSDL.
func asksForWSDL(query *fasthttp.Args) bool {
	for key := range query.All() {
		if strings.EqualFold(string(key), "wsdl") {
			return true
		}
	}
	return false
}

// address is where clients reach the service, as a setting or their request says.
func (s *Service) address(ctx *fasthttp.RequestCtx) string {
	if s.cfg.PublicURL != "" {
		return s.cfg.PublicURL + Path
	}
	host := string(ctx.Host())
	if host == "" {
		host = ctx.LocalAddr().String()
	}
	return fmt.Sprintf("%s://%s%s", s.scheme, host, ctx.Path())
}
