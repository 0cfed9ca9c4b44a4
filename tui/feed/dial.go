package feed

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/credentials/insecure"
)

// ErrAddress is wrapped by errors about an address that can't be dialled.
var ErrAddress = errors.New("feed: bad address")

// maxSocketPath is the kernel's bound on a unix socket's path.
const maxSocketPath = 107

// maxMessageBytes bounds one snapshot: 100,000 ranks take about 10 MB.
const maxMessageBytes = 32 << 20

// Dial prepares a connection to an engine's unix socket, "unix:PATH" or PATH;
// it connects when first used, and again whenever the engine comes back. A
// unix socket needs no encryption: its owner and mode decide who may connect.
func Dial(addr string) (*grpc.ClientConn, error) {
	path := strings.TrimPrefix(strings.TrimPrefix(addr, "unix://"), "unix:")
	switch {
	case path == "":
		return nil, fmt.Errorf("%w: it is empty; give the path of the engine's socket", ErrAddress)
	case !strings.Contains(path, "/") && strings.Contains(path, ":"):
		return nil, fmt.Errorf("%w: %q is no socket path; give unix:PATH, such as unix:./falcon.sock",
			ErrAddress, addr)
	case len(path) > maxSocketPath:
		return nil, fmt.Errorf(
			"%w: the socket path is %d bytes long, more than the %d that the system allows",
			ErrAddress, len(path), maxSocketPath,
		)
	}
	dial := func(ctx context.Context, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "unix", path)
	}
	retry := backoff.DefaultConfig
	retry.BaseDelay = 100 * time.Millisecond
	retry.MaxDelay = time.Second
	return grpc.NewClient("passthrough:///engine",
		grpc.WithContextDialer(dial),
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithConnectParams(grpc.ConnectParams{Backoff: retry, MinConnectTimeout: time.Second}),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(maxMessageBytes)),
	)
}
