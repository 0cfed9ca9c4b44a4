package sshserver

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"runtime/debug"
	"slices"
	"sync"
	"time"

	"charm.land/ssh"
	"github.com/charmbracelet/colorprofile"
	gossh "golang.org/x/crypto/ssh"

	"github.com/failslow/falcon/themes"
	"github.com/failslow/falcon/tui"
	"github.com/failslow/falcon/tui/plain"
)

// profiles are the colours that a session may ask for.
var profiles = map[string]*colorprofile.Profile{
	"truecolor": new(colorprofile.TrueColor),
	"256":       new(colorprofile.ANSI256),
	"16":        new(colorprofile.ANSI),
	"none":      new(colorprofile.ASCII),
}

// Why sessions end other than by their operators.
var (
	errIdle     = errors.New("closed: no key for a while; connect again to go on")
	errStopping = errors.New("closed: Falcon is stopping here")
	errRevoked  = errors.New("closed: your key no longer lets you in")
)

// exits of a session.
const (
	exitDone  = 0
	exitWork  = 1
	exitUsage = 2
)

// openSession is a running session.
type openSession struct {
	srv   *Server
	sess  ssh.Session
	who   Caller
	ask   sessionCommand
	link  *flowControl
	input *input
	pty   ssh.Pty
	isPty bool
	sizes <-chan tui.Size // nil without a terminal
}

// sessionHandler is the handler of sessions.
func (s *Server) sessionHandler(ssh.Handler) ssh.Handler {
	return func(sess ssh.Session) {
		if c, ok := sess.Context().(*channel); ok {
			defer c.running.Done()
		}
		if !s.beginSession() {
			return
		}
		defer s.running.Done()
		defer func() {
			if p := recover(); p != nil {
				s.log.Error("ssh: panic in a session", "panic", p, "stack", string(debug.Stack()))
				_ = sess.Exit(exitWork)
			}
		}()
		s.runSession(sess)
	}
}

func (s *Server) runSession(sess ssh.Session) {
	ext := sess.Permissions().Extensions
	o := &openSession{
		srv:  s,
		sess: sess,
		who:  Caller{ext[extName], ext[extRole], ext[extFrom]},
	}
	var windows <-chan ssh.Window
	if o.pty, windows, o.isPty = sess.Pty(); o.isPty {
		o.sizes = watchSizes(windows)
	}
	if !o.stillAllowed() { // the connection may be much older
		o.leaveNote(exitWork, errRevoked.Error())
		return
	}
	var err error
	if o.ask, err = parseCommand(sess.RawCommand()); err != nil {
		o.leaveNote(exitUsage, err.Error())
		return
	}
	if o.ask.help {
		_, _ = io.WriteString(sess, usage)
		o.leaveNote(exitDone, "")
		return
	}
	engine, err := s.cfg.Dial(o.who)
	if err != nil {
		o.leaveNote(exitWork, err.Error())
		return
	}
	defer engine.End()
	log := s.log.With("name", o.who.Name, "role", o.who.Role, "from", o.who.From)
	log.Info("ssh: session began", "command", sess.RawCommand(), "terminal", o.isPty)
	start := s.now()
	code, why := o.followLive(engine)
	log.Info(
		"ssh: session ended",
		"after",
		s.now().Sub(start).Round(time.Second).String(),
		"code",
		code,
		"why",
		why,
	)
}

// followLive runs the session with what guards it, and says how it ended.
func (o *openSession) followLive(engine Engine) (int, string) {
	ctx, end := context.WithCancelCause(o.sess.Context())
	stop := context.AfterFunc(o.srv.ctx, func() { end(errStopping) })
	defer stop()
	o.link = newFlowControl(o.sess, o.srv.limits.Stall, o.srv.now, func(err error) {
		end(err)
		if c, ok := o.sess.Context().Value(ssh.ContextKeyConn).(gossh.Conn); ok {
			_ = c.Close()
		}
	})
	o.input = newSessionInput(o.sess, o.srv.now)
	watching, unwatch := context.WithCancel(context.Background())
	var guards, watch sync.WaitGroup
	watch.Go(func() { o.link.watchMarkers(watching) })
	guards.Go(func() { o.link.markers(ctx) })
	guards.Go(func() { o.checkAccess(ctx, end) })
	err := o.showConsole(ctx, engine)
	code, why := sessionVerdict(context.Cause(ctx), err)
	end(nil)
	o.leaveNote(code, why)
	guards.Wait() // a mark under way ends with the channel, or is cut
	unwatch()
	watch.Wait()
	return code, why
}

// sessionVerdict is how a session ended: by an outside cause or by its own error.
func sessionVerdict(cause, err error) (int, string) {
	switch {
	case cause != nil && !errors.Is(cause, context.Canceled):
		return exitWork, cause.Error()
	case cause != nil:
		return exitWork, "" // the client has gone
	case errors.Is(err, errAsk), errors.Is(err, themes.ErrTheme):
		return exitUsage, err.Error()
	case err != nil:
		return exitWork, err.Error()
	}
	return exitDone, ""
}

// leaveNote sends why, where that has to be said, and ends the session.
func (o *openSession) leaveNote(code int, why string) {
	if why != "" {
		_, _ = fmt.Fprintln(o.sess.Stderr(), "falcon: "+why)
	}
	_ = o.sess.Exit(code)
}

// checkAccess ends the session when no one has pressed a key for long, or when the
// key that began it no longer lets anybody in.
func (o *openSession) checkAccess(ctx context.Context, end context.CancelCauseFunc) {
	t := time.NewTicker(o.srv.limits.Recheck)
	defer t.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-t.C:
		}
		idle := o.srv.limits.Idle
		if o.isPty && idle > 0 && o.input.idleFor() >= idle {
			end(errIdle)
		}
		if !o.stillAllowed() {
			end(errRevoked)
		}
	}
}

func (o *openSession) stillAllowed() bool {
	raw, err := base64.StdEncoding.DecodeString(o.sess.Permissions().Extensions[extKey])
	if err != nil {
		return false
	}
	key, err := gossh.ParsePublicKey(raw)
	if err != nil {
		return false
	}
	who, err := o.srv.cfg.Identify(key, o.sess.RemoteAddr())
	return err == nil && who.Name == o.who.Name && who.Role == o.who.Role
}

// showConsole is what the session is for.
func (o *openSession) showConsole(ctx context.Context, engine Engine) error {
	switch {
	case o.ask.once:
		return o.showOnce(ctx, engine)
	case o.ask.plain ||
		o.ask.reader ||
		!o.isPty ||
		o.pty.Term == "dumb" ||
		o.pty.Term == "":
		return o.showLines(ctx, engine)
	}
	return o.showScreen(ctx, engine)
}

// showOnce is the state now.
func (o *openSession) showOnce(ctx context.Context, engine Engine) error {
	if !o.ask.reader || o.ask.json {
		return plain.Once(ctx, engine.Client, o.link, o.ask.json, o.ask.open)
	}
	out := plain.Speak(o.link)
	err := plain.Once(ctx, engine.Client, out, false, o.ask.open)
	if end := out.Close(); err == nil {
		err = end
	}
	return err
}

// showLines is the plain stream. On a terminal, which the client has made raw, the
// echo is the server's; its end ends the session, as nothing else could.
func (o *openSession) showLines(ctx context.Context, engine Engine) error {
	src := o.srv.hub.Session(engine.Client)
	defer src.Close()
	opts := plain.Options{
		In:     o.input,
		Open:   o.ask.open,
		Source: src,
		Reader: o.ask.reader,
	}
	if o.isPty {
		ctx, leave := context.WithCancel(ctx)
		defer leave()
		opts.In = &lineEditor{from: o.input, echo: o.link, ended: leave}
		return plain.Run(ctx, engine.Client, o.link, opts)
	}
	return plain.Run(ctx, engine.Client, o.link, opts)
}

func (o *openSession) showScreen(ctx context.Context, engine Engine) error {
	f := o.srv.hub.Session(engine.Client)
	defer f.Close()
	src := newPacedReader(f, o.link, o.srv.now)
	var pace sync.WaitGroup
	paceCtx, stop := context.WithCancel(ctx)
	defer pace.Wait()
	defer stop()
	pace.Go(func() { src.runPump(paceCtx) })
	opts := o.srv.cfg.Screen
	opts.Lag, opts.Open = src.Lag, o.ask.open
	if o.ask.theme != "" {
		opts.Theme = o.ask.theme
	}
	opts.ASCII = opts.ASCII || o.ask.ascii
	if p := profiles[o.ask.color]; p != nil {
		opts.Profile = p
	}
	env := append(slices.Clone(o.sess.Environ()), "TERM="+o.pty.Term)
	return tui.Run(
		ctx,
		src,
		tui.Terminal{
			In:     o.input,
			Out:    o.link,
			Env:    env,
			Remote: &tui.Remote{Size: claimedSize(o.pty.Window), Sizes: o.sizes},
		},
		opts,
	)
}
