package enginetest

import (
	"context"
	"net"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/test/bufconn"

	falconv1 "github.com/failslow/falcon/backend/api/falcon/v1"
)

// Server serves an Engine; its owner must call Close.
type Server struct {
	grpc *grpc.Server
	lis  *bufconn.Listener
	done chan struct{}
}

// Serve starts serving on lis.
func (e *Engine) Serve(lis net.Listener) *Server {
	s := &Server{grpc: grpc.NewServer(), done: make(chan struct{})}
	falconv1.RegisterConsoleServer(s.grpc, e)
	go func() {
		defer close(s.done)
		_ = s.grpc.Serve(lis) // ends with Close
	}()
	return s
}

// ServeInMemory starts serving inside the process.
func (e *Engine) ServeInMemory() *Server {
	lis := bufconn.Listen(1 << 20)
	s := e.Serve(lis)
	s.lis = lis
	return s
}

// Dial connects to a server inside the process.
func (s *Server) Dial() (*grpc.ClientConn, error) {
	return grpc.NewClient("passthrough:///fake",
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) {
			return s.lis.DialContext(ctx)
		}),
		grpc.WithTransportCredentials(insecure.NewCredentials()))
}

// Close stops serving and waits.
func (s *Server) Close() {
	s.grpc.Stop()
	<-s.done
}
