package main

import (
	"fmt"
	"log/slog"
	"net"
	"time"

	gossh "golang.org/x/crypto/ssh"

	falconv1 "github.com/failslow/falcon/backend/api/falcon/v1"
	"github.com/failslow/falcon/backend/auth"
	"github.com/failslow/falcon/backend/rpc"
	"github.com/failslow/falcon/tui/sshserver"
)

// hostKeyName is the SSH front's own key, in the state directory.
const hostKeyName = "ssh_host_key"

// sshConfig is the ssh key of falcon.yaml.
type sshConfig struct {
	Listen         string         `yaml:"listen"`   // HOST:PORT; "" = none
	HostKey        string         `yaml:"host_key"` // made when it is not there
	AuthorizedKeys string         `yaml:"authorized_keys"`
	UserCA         string         `yaml:"user_ca"`
	Sessions       int            `yaml:"sessions"`
	Idle           *time.Duration `yaml:"idle"` // nil = the default; 0 = never
}

func (c *sshConfig) validate() error {
	switch {
	case c.Listen == "":
		return nil
	case c.AuthorizedKeys == "" && c.UserCA == "":
		return fmt.Errorf("%w: ssh: no one could log in: give authorized_keys, user_ca, or both", errUsage)
	case c.Sessions < 0 || c.Sessions > 1000:
		return fmt.Errorf("%w: ssh: sessions is %d; give 1 to 1000", errUsage, c.Sessions)
	case c.Idle != nil && *c.Idle < 0:
		return fmt.Errorf("%w: ssh: idle is negative; 0s means never", errUsage)
	}
	if _, _, err := net.SplitHostPort(c.Listen); err != nil {
		return fmt.Errorf("%w: ssh: listen %q is not of the form HOST:PORT, such as 0.0.0.0:2222",
			errUsage, c.Listen)
	}
	return nil
}

func (c *sshConfig) sessionLimits() sshserver.Limits {
	l := sshserver.Limits{Sessions: c.Sessions}
	if c.Idle != nil {
		l.Idle = *c.Idle
		if l.Idle == 0 {
			l.Idle = -1
		}
	}
	return l
}

// listen starts the SSH server. Every session gets a
// client of the engine that is bound to whom the key or certificate proves.
func (c *sshConfig) listen(
	book *auth.KeyBook,
	server *rpc.Server,
	log *slog.Logger,
) (*sshserver.Server, error) {
	return sshserver.Listen(sshserver.Config{
		Address: c.Listen,
		HostKey: c.HostKey,
		Limits:  c.sessionLimits(),
		Log:     log,
		Identify: func(key gossh.PublicKey, addr net.Addr) (sshserver.Caller, error) {
			id, err := book.Identify(key, addr)
			return sshserver.Caller{Name: id.Name, Role: string(id.Role), From: id.From}, err
		},
		Dial: func(who sshserver.Caller) (sshserver.Engine, error) {
			cc, err := server.As(auth.Identity{
				Role: auth.Role(who.Role),
				Name: who.Name,
				From: who.From,
			})
			if err != nil {
				return sshserver.Engine{}, err
			}
			return sshserver.Engine{
				Client: falconv1.NewConsoleClient(cc),
				End: func() {
					_ = cc.Close()
				},
			}, nil
		},
	})
}
