package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"

	"github.com/failslow/falcon/agent/lab"
	falconv1 "github.com/failslow/falcon/backend/api/falcon/v1"
	"github.com/failslow/falcon/backend/api/remedy"
	"github.com/failslow/falcon/backend/auth"
	"github.com/failslow/falcon/tui/clean"
)

// callTimeout bounds one call of a command that asks the engine.
const callTimeout = 10 * time.Second

// snapshotBytesMax bounds what a console takes: 100,000 ranks are about 15 MB.
const snapshotBytesMax = 64 << 20

// engineTarget says which engine a command talks to: a unix socket by its
// path, or HOST:PORT with certificates.
type engineTarget struct {
	connect string
	context string // of the operator's contexts, "" = the current one, if there is one
	server  string // name in the engine's certificate, "" = the host of the address
	certs   auth.Files
}

func (t *engineTarget) declareFlags(c *cobra.Command) {
	c.PersistentFlags().StringVar(
		&t.connect,
		"connect",
		"",
		"engine's socket, or HOST:PORT with the three certificate flags (default $FALCON_SOCKET, then the state directory's socket, then that of the one lab that runs here)",
	)
	c.PersistentFlags().StringVar(&t.context, "context", "",
		"engine of this context: falcon context list has them")
	_ = c.RegisterFlagCompletionFunc("context", completeContextList) // fails for a flag that is not there
	c.PersistentFlags().StringVar(&t.certs.CA, "ca", "", "authority's certificate, for HOST:PORT")
	c.PersistentFlags().StringVar(&t.certs.Cert, "cert", "", "own certificate, for HOST:PORT")
	c.PersistentFlags().StringVar(&t.certs.Key, "key", "", "own key, for HOST:PORT")
	c.PersistentFlags().StringVar(&t.server, "server-name", "",
		"name in the engine's certificate, where it is not HOST")
}

func (t *engineTarget) engineAddress() string {
	if t.connect != "" {
		return t.connect
	}
	if s := os.Getenv("FALCON_SOCKET"); s != "" {
		return s
	}
	return filepath.Join(defaultStateDir(), socketName)
}

// runningEngine is the socket of an engine that answers where one would be started
// with this configuration, else that of a lab that runs here; "" where none does, or --connect
// names one.
func (t *engineTarget) runningEngine(config string) (string, error) {
	addr := t.engineAddress()
	if config != "" {
		cfg, err := loadEngineConfig(config)
		if err != nil {
			return "", err
		}
		addr = cfg.Socket
	}
	if t.connect != "" || !isSocket(addr) {
		return "", nil
	}
	c, err := net.DialTimeout("unix", strings.TrimPrefix(addr, "unix:"), time.Second)
	switch {
	case err == nil:
		return addr, c.Close()
	case errors.Is(err, fs.ErrNotExist) &&
		config == "" &&
		os.Getenv("FALCON_SOCKET") == "" &&
		len(labSockets()) > 0:
		return t.findSocket(addr)
	}
	return "", nil // whatever the reason, starting one says it better
}

// findSocket is the socket to use: the one at path, or where that is only the
// default and there is none, that of the one lab that runs here.
func (t *engineTarget) findSocket(path string) (string, error) {
	if _, err := os.Stat(path); !errors.Is(err, fs.ErrNotExist) {
		return path, nil
	}
	var labs []string
	if t.connect == "" && os.Getenv("FALCON_SOCKET") == "" {
		labs = labSockets()
	}
	switch len(labs) {
	case 0:
		return "", fmt.Errorf(
			"no engine at %s: start one with falcon serve, or name its socket with --connect",
			clean.String(path),
		)
	case 1:
		return labs[0], nil
	}
	if chosen, ok := askWhich("labs", labs); ok {
		return chosen, nil
	}
	return "", fmt.Errorf("no engine at %s, and %d labs run here: name the engine of one with --connect: %s",
		clean.String(path), len(labs), clean.String(strings.Join(labs, ", ")))
}

// labSockets are the engines' sockets of the labs that this user runs here.
func labSockets() []string {
	var out []string
	for _, dir := range lab.Running() {
		socket := filepath.Join(dir, socketName)
		if _, err := os.Stat(socket); err == nil {
			out = append(out, socket)
		}
	}
	return out
}

// dialTarget makes a client; no call is made yet.
func (t *engineTarget) dialTarget() (*grpc.ClientConn, error) {
	if err := t.useContext(); err != nil {
		return nil, err
	}
	addr := t.engineAddress()
	limit := grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(snapshotBytesMax))
	if isSocket(addr) {
		path, err := t.findSocket(strings.TrimPrefix(addr, "unix:"))
		if err != nil {
			return nil, err
		}
		abs, err := filepath.Abs(path)
		if err != nil {
			return nil, err
		}
		return grpc.NewClient("unix://"+abs, grpc.WithTransportCredentials(insecure.NewCredentials()), limit)
	}
	if t.certs.Cert == "" || t.certs.Key == "" || t.certs.CA == "" {
		return nil, fmt.Errorf(
			"%w: %s is reached over TLS: give --ca, --cert and --key, or have a context for it: falcon context join FILE takes the file that falcon certs issue --for %[2]s writes",
			errUsage, clean.String(addr),
		)
	}
	conf, err := auth.ClientTLS(t.certs)
	if err != nil {
		return nil, err
	}
	conf.ServerName = t.server
	return grpc.NewClient(addr, grpc.WithTransportCredentials(credentials.NewTLS(conf)), limit)
}

// isSocket reports whether an address is a socket's path instead of HOST:PORT.
func isSocket(addr string) bool {
	return strings.HasPrefix(addr, "unix:") ||
		strings.ContainsRune(addr, '/') ||
		!strings.ContainsRune(addr, ':')
}

// ask makes one call to the engine.
func ask[T any](
	c *cobra.Command,
	t *engineTarget,
	call func(context.Context, falconv1.ConsoleClient) (T, error),
) (T, error) {
	var none T
	conn, err := t.dialTarget()
	if err != nil {
		return none, err
	}
	defer conn.Close()
	ctx, cancel := context.WithTimeout(c.Context(), callTimeout)
	defer cancel()
	out, err := call(ctx, falconv1.NewConsoleClient(conn))
	if err != nil {
		return none, refusal(err, t.engineAddress())
	}
	return out, nil
}

// refusal turns a gRPC error into a sentence.
func refusal(err error, addr string) error {
	s := status.Convert(err)
	msg := clean.String(s.Message())
	switch s.Code() {
	case codes.Unavailable:
		return fmt.Errorf("no engine answers at %s: %s", clean.String(addr), remedy.With(msg))
	case codes.DeadlineExceeded:
		return fmt.Errorf("the engine at %s did not answer within %s", clean.String(addr), callTimeout)
	case codes.InvalidArgument:
		return fmt.Errorf("%w: %s", errUsage, trimPackage(msg))
	}
	return errors.New(trimPackage(msg))
}

// trimPackage drops the package prefixes of a remote sentinel: they are for
// programs.
func trimPackage(msg string) string {
	for _, p := range []string{
		"engine: not found: ", "engine: stale: ", "engine: invalid: ", "engine: refused: ",
		"engine: denied: ", "auth: unknown caller: ", "mitigate: ", "recovery: ",
	} {
		msg = strings.TrimPrefix(msg, p)
	}
	return msg
}
