// Package api is the one HTTP server for clients: connections, routes, keys,
// rate limits, and the body of every error (contract 1.1, 1.4). What a
// route does is an Endpoint's business; this package knows none of them.
//
// A request takes three steps, all on its connection's own goroutine:
//
//	header complete ─▶ Server.headerReceived   path, method, key, right, rate, Endpoint.Before
//	                          │ exchange         (without a body: in Server.handle)
//	first body byte  ─▶ Server.handle          Endpoint.Serve, or the refusal
//	answer written   ─▶ conn.Close             discards what a refused client still sends
//
// Three things about fasthttp shape this:
//
//   - HeaderReceived is the only place that comes before the body, and all that it
//     gets is the header. What was found there waits in Server.pending, keyed by
//     the header's address, which is the same in the handler. A refused request
//     is given the length 0, so that fasthttp awaits no byte of its body. Where there
//     is no body anyway, all of it is done in the handler.
//   - An unread rest of a body would be read as the next request. So wherever a
//     body was not read to its end the connection closes after the answer.
//   - Closing a socket that holds unread bytes resets it, and a reset can overtake the
//     answer. So the conn half-closes first and discards for a bounded time and size.
//
// Between fasthttp and the system there are three layers: conn, which spares what need not be
// done for each request (deadline, joined), TLS where it is wanted, and socket.
package api
