package engine

// Actor is who asks, as proven by the transport.
type Actor struct {
	Name string
	Role string
	From string
}
