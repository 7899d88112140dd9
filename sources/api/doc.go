// Package api is the HTTP server for clients: connections, routes, keys, rate limits, and the body
// of every error (contract 1.1, 1.4). An Endpoint handles the requests of a route.
//
// A request takes three steps on the goroutine of its connection:
//
//	header complete ─▶ Server.headerReceived   path, method, key, right, rate, Endpoint.Admit
//	                          │ exchange         (without a body: in Server.handle)
//	first body byte  ─▶ Server.handle          Endpoint.Handle, or the error
//	answer written   ─▶ conn.Close             discards what a client still sends after an error
//
// Three properties of fasthttp shape this:
//
//   - HeaderReceived is the only hook before the body, and gets the header only. Its result waits
//     in Server.pending. A request with an error gets the length 0, so that fasthttp does not wait
//     for its body. Without a body everything happens in the handler.
//   - The unread rest of a body would be read as the next request. So if a body was not read to its
//     end, the connection closes after the answer.
//   - Closing a socket with unread bytes resets it, and a reset can overtake the answer. So conn
//     closes the sending side first and discards for a bounded time and size.
package api
