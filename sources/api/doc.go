// Package api is the HTTP server for clients: connections, routes, keys, rate limits, and the body
// of every error (contract 1.1, 1.4). An Endpoint handles the requests of a route.
//
// A request is processed in three steps on the goroutine of its connection:
//
//	header complete ─▶ Server.headerReceived   path, method, key, right, rate, Endpoint.Admit
//	                          │ exchange         (without a body: in Server.handle)
//	first body byte  ─▶ Server.handle          Endpoint.Handle, or the error
//	response written ─▶ conn.Close             discards what a client still sends after an error
//
// This is due to three properties of fasthttp:
//
//   - HeaderReceived is the only hook before the body, and receives only the header. Server.pending
//     keeps its result for the handler. After an error, headerReceived sets the length to 0, so
//     that fasthttp does not wait for the body. A request without a body is checked in the handler.
//   - The unread rest of a body would be read as the next request. So if a body was not read to its
//     end, the connection is closed after the response.
//   - Closing a socket with unread data resets it, and a reset can overtake the response. So conn
//     first closes the sending side and discards data for a bounded time.
package api
