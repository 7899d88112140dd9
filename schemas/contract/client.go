package contract

import "time"

// Right is what a key allows (decisions.md 1.4).
type Right uint8

// The rights of a key, to be combined by |.
const (
	RightIngest Right = 1 << iota
	RightForecast
	RightRouting
	RightAdmin
)

// Client is who a key belongs to. It is immutable; a reload of the keys makes
// new ones.
type Client struct {
	Name            string // for logs and metrics; never the key
	ProductInstance string
	Rights          Right
	Zone            *time.Location // never nil
}

// May reports whether the client has the right.
func (c *Client) May(r Right) bool { return c.Rights&r == r }
