package agent

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"

	falconv1 "github.com/failslow/falcon/backend/api/falcon/v1"
	"github.com/failslow/falcon/backend/api/version"
)

// The log names both ends once for each version of the engine, and what to do.
func TestEngineOfAnotherRevisionIsLogged(t *testing.T) {
	var log bytes.Buffer
	var seen engineSeen
	for _, c := range []struct {
		welcome *falconv1.Welcome
		says    string
	}{
		{&falconv1.Welcome{}, ""},
		{&falconv1.Welcome{Version: "v9", Protocol: falconv1.ProtocolRevision + 1}, "upgrade the agent"},
		{&falconv1.Welcome{Version: "v9", Protocol: falconv1.ProtocolRevision + 1}, ""},
		{&falconv1.Welcome{Version: "v7", Protocol: falconv1.ProtocolRevision - 1}, "upgrade the engine"},
		{&falconv1.Welcome{Version: "v8", Protocol: falconv1.ProtocolRevision}, "level=INFO"},
	} {
		log.Reset()
		seen.note(c.welcome, slog.New(slog.NewTextHandler(&log, nil)))
		got := log.String()
		if (c.says == "") != (got == "") ||
			!strings.Contains(got, c.says) ||
			got != "" && !strings.Contains(got, version.Own()) {
			t.Errorf("%v: %q", c.welcome, got)
		}
	}
}

func TestHelloHasEveryFormat(t *testing.T) {
	for i, f := range HelloFormats() {
		if f.GetName() == "" ||
			f.GetOldest() > f.GetNumber() ||
			f.GetNumber() != Formats()[i].Number {
			t.Errorf("%v", f)
		}
	}
}
