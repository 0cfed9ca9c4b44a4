package ship

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"os"
	"slices"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	grpccreds "google.golang.org/grpc/credentials"
	"google.golang.org/grpc/keepalive"

	falconv1 "github.com/failslow/falcon/backend/api/falcon/v1"
	"github.com/failslow/falcon/backend/clock"
)

// Small buffers, shared between streams (the default): an agent sends a few KiB a second, and the
// engine holds thousands of such streams.
const (
	readBufferBytes = 4 << 10
	// and the most of a TLS record, of which the engine keeps room for one per stream
	writeBufferBytes = 4 << 10
)

type stream = grpc.BidiStreamingClient[falconv1.AgentFrame, falconv1.EngineFrame]

// credentials reads the files again for every connection, so that a renewed
// certificate needs no restart.
func credentials(cfg Config) (grpccreds.TransportCredentials, *x509.Certificate, error) {
	cert, err := loadKeyPair(cfg)
	if err != nil {
		return nil, nil, fmt.Errorf("%w: %w (issue them with \"falcon certs issue\")", ErrCredentials, err)
	}
	pem, err := os.ReadFile(cfg.CAFile)
	if err != nil {
		return nil, nil, fmt.Errorf("%w: %w", ErrCredentials, err)
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(pem) {
		return nil, nil, fmt.Errorf("%w: %s holds no PEM certificate", ErrCredentials, cfg.CAFile)
	}
	name := cfg.ServerName
	if name == "" {
		if name, _, err = net.SplitHostPort(cfg.Address); err != nil {
			return nil, nil, fmt.Errorf("%w: engine address %q is not HOST:PORT", ErrCredentials, cfg.Address)
		}
	}
	return grpccreds.NewTLS(&tls.Config{
		MinVersion:   tls.VersionTLS13,
		Certificates: []tls.Certificate{cert},
		RootCAs:      pool,
		ServerName:   name,
		Time:         clock.ValidityTime(cert.Leaf),
	}), cert.Leaf, nil
}

// Check returns why no stream could be opened with these files; the engine is not asked.
func Check(cfg Config) error {
	_, _, err := credentials(cfg)
	return err
}

func (s *Shipper) dialOptions() ([]grpc.DialOption, *x509.Certificate, error) {
	creds, leaf, err := credentials(s.cfg)
	if err != nil {
		return nil, nil, err
	}
	opts := []grpc.DialOption{
		grpc.WithTransportCredentials(creds),
		grpc.WithKeepaliveParams(keepalive.ClientParameters{Time: KeepaliveEvery, Timeout: KeepaliveMax}),
		grpc.WithReadBufferSize(readBufferBytes),
		grpc.WithWriteBufferSize(writeBufferBytes),
		grpc.WithConnectParams(grpc.ConnectParams{
			Backoff:           backoff.DefaultConfig,
			MinConnectTimeout: BackoffMax,
		}),
		grpc.WithDefaultCallOptions(grpc.MaxCallSendMsgSize(frameBytesMax)),
	}
	if s.cfg.Dial != nil {
		opts = append(opts, grpc.WithContextDialer(s.cfg.Dial))
	}
	return opts, leaf, nil
}

// runStream holds one stream until it ends.
func (s *Shipper) runStream(ctx context.Context) error {
	opts, leaf, err := s.dialOptions()
	if err != nil {
		return err
	}
	conn, err := grpc.NewClient("passthrough:///"+s.cfg.Address, opts...)
	if err != nil {
		return fmt.Errorf("ship: %w", err)
	}
	defer conn.Close()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer s.setConnected(false)
	s.setBreakOff(cancel)
	defer s.setBreakOff(nil)
	st, acked, err := s.exchangeHello(ctx, cancel, conn)
	if err != nil {
		return err
	}

	var receiving sync.WaitGroup
	var recvErr error
	receiving.Go(func() { s.keepCertificate(ctx, conn, leaf) })
	receiving.Go(func() {
		defer cancel()
		recvErr = s.receiveFrames(st)
	})
	sendErr := s.sendFrames(ctx, st, acked)
	if sendErr == nil { // closing: the engine ends the stream once it has read all
		_ = st.CloseSend()
	} else {
		cancel()
	}
	receiving.Wait()
	if recvErr != nil {
		return recvErr
	}
	return sendErr
}

// exchangeHello sends the hello and waits, bounded, for the welcome.
func (s *Shipper) exchangeHello(
	ctx context.Context,
	cancel context.CancelFunc,
	conn *grpc.ClientConn,
) (stream, uint64, error) {
	timer := time.AfterFunc(WelcomeMax, cancel)
	defer timer.Stop()
	st, err := falconv1.NewFleetClient(conn).Attach(ctx)
	if err != nil {
		return nil, 0, fmt.Errorf("ship: attach: %w", err)
	}
	// A failed send shows its reason on receive.
	_ = st.Send(s.helloFrame())
	first, err := st.Recv()
	if err != nil {
		return nil, 0, fmt.Errorf("ship: welcome: %w", err)
	}
	w := first.GetWelcome()
	if w == nil {
		return nil, 0, errWelcome(first)
	}
	for _, f := range s.beginStream(w) {
		if err := st.Send(f); err != nil {
			return nil, 0, fmt.Errorf("ship: send: %w", err)
		}
	}
	return st, w.Acked, nil
}

// beginStream begins a stream, and returns what it begins with, unnumbered: which
// processes have ended lately, and the present state of every rank.
func (s *Shipper) beginStream(w *falconv1.Welcome) []*falconv1.AgentFrame {
	s.mu.Lock()
	s.spool.resumeFrom(w.Acked)
	s.connected = true
	out := s.ended.begin(s.spool.holdsEnd)
	for _, pid := range slices.Sorted(maps.Keys(s.ranks)) {
		out = append(out, &falconv1.AgentFrame{Body: &falconv1.AgentFrame_Rank{Rank: s.ranks[pid]}})
	}
	s.mu.Unlock()
	s.log.Info(
		"attached to the engine",
		slog.Uint64("epoch", w.Epoch),
		slog.Uint64("acked", w.Acked),
	)
	if s.cfg.Welcome != nil {
		s.cfg.Welcome(w)
	}
	return out
}

func (s *Shipper) setConnected(on bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.connected, s.beat = on, nil
}

// sendFrames sends what is new until the stream ends; nil means that Close
// asked for the end and all was sent.
func (s *Shipper) sendFrames(ctx context.Context, st stream, sent uint64) error {
	for {
		beat, frame, closing := s.nextFrame(sent)
		if beat != nil {
			if err := st.Send(&falconv1.AgentFrame{Body: &falconv1.AgentFrame_Beat{Beat: beat}}); err != nil {
				return fmt.Errorf("ship: send: %w", err)
			}
		}
		if frame != nil {
			if err := st.Send(frame); err != nil {
				return fmt.Errorf("ship: send: %w", err)
			}
			sent = frame.Seq
			continue
		}
		if closing {
			return goodbyeFrame(st)
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-s.wake:
		}
	}
}

// goodbyeFrame is the last frame: the node's processes go on without an agent for a
// while. An engine that does not know it passes over it.
func goodbyeFrame(st stream) error {
	if err := st.Send(sendGoodbye()); err != nil {
		return fmt.Errorf("ship: send: %w", err)
	}
	return nil
}

func sendGoodbye() *falconv1.AgentFrame {
	return &falconv1.AgentFrame{
		Body: &falconv1.AgentFrame_Goodbye{Goodbye: &falconv1.Goodbye{Reason: "stopping"}},
	}
}

func (s *Shipper) nextFrame(sent uint64) (*falconv1.Beat, *falconv1.AgentFrame, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	beat := s.beat
	s.beat = nil
	return beat, s.spool.frameAfter(sent, s.cfg.Now()), s.closing
}

// receiveFrames handles the engine's frames until the stream ends.
func (s *Shipper) receiveFrames(st stream) error {
	for {
		f, err := st.Recv()
		if err != nil {
			return fmt.Errorf("ship: receive: %w", err)
		}
		if err := st.Context().Err(); err != nil {
			return fmt.Errorf("ship: receive: %w", err) // what came is of a stream that was given up
		}
		s.handleFrame(f)
	}
}

func (s *Shipper) handleFrame(f *falconv1.EngineFrame) {
	switch body := f.Body.(type) {
	case *falconv1.EngineFrame_Ack:
		s.mu.Lock()
		s.spool.acknowledge(body.Ack.Seq)
		s.progress = true
		s.mu.Unlock()
	case *falconv1.EngineFrame_Welcome:
		if s.cfg.Welcome != nil {
			s.cfg.Welcome(body.Welcome)
		}
	case *falconv1.EngineFrame_Command:
		if s.cfg.Command != nil {
			s.cfg.Command(body.Command)
		}
	case *falconv1.EngineFrame_Ask:
		if s.cfg.Ask != nil {
			s.cfg.Ask(body.Ask)
		}
	case *falconv1.EngineFrame_Peek:
		if s.cfg.Peek != nil {
			s.cfg.Peek(body.Peek)
		}
	}
}
