package tui

import (
	"fmt"
	"strings"
	"testing"
	"time"

	tea "charm.land/bubbletea/v2"
	uv "github.com/charmbracelet/ultraviolet"

	"github.com/failslow/falcon/tui/alert"
	"github.com/failslow/falcon/tui/internal/enginetest"
)

// raw is what a command writes to the terminal, "" for nothing.
func raw(cmd tea.Cmd) string {
	if cmd == nil {
		return ""
	}
	if msg, ok := cmd().(tea.RawMsg); ok {
		return fmt.Sprint(msg.Msg)
	}
	return ""
}

func TestNewIncidentRingsAndNotifiesTheAbsent(t *testing.T) {
	src := &still{state: stateAt(t, enginetest.Options{}, 30, 0, wide)}
	clk := newClock()
	m := quiet(t, src, Options{Theme: "dark", Now: clk.now}, 80, 24)
	if got := raw(meet(m, tea.EnvMsg{"TERM=xterm-256color"})); got != alert.Probe {
		t.Errorf("the probe: %q", got)
	}
	if raw(m.alertIfDue()) != "" {
		t.Error("a healthy job rings")
	}
	m.Update(uv.UnknownOscEvent("\x1b]99;i=falcon-probe:p=?;o=unfocused\x1b\\"))
	m.Update(tea.BlurMsg{})
	m.updateState(stateAt(t, enginetest.Options{}, enginetest.Located, 0, wide))
	got := raw(m.alertIfDue())
	if !strings.HasPrefix(got, "\a\x1b]99;") || !strings.Contains(got, "INC-0001") {
		t.Errorf("a new incident: %q", got)
	}
	clk.pass(5 * time.Second)
	if raw(m.alertIfDue()) != "" {
		t.Error("told twice")
	}
	if m.newBanner().windowTitle() != "! INC-0001 · falcon · demo" &&
		!strings.HasPrefix(m.newBanner().windowTitle(), "! INC-0001") {
		t.Errorf("title %q", m.newBanner().windowTitle())
	}
}

func TestMutedConsoleIsSilent(t *testing.T) {
	src := &still{state: stateAt(t, enginetest.Options{}, 30, 0, wide)}
	m := quiet(
		t,
		src,
		Options{Theme: "dark", Now: newClock().now, Silent: true},
		80,
		24,
	)
	if raw(meet(m, tea.EnvMsg{"TERM=xterm-kitty"})) != "" {
		t.Error("asks for what isn't wanted")
	}
	m.alertIfDue()
	send(m, "B")
	m.Update(tea.BlurMsg{})
	m.updateState(stateAt(t, enginetest.Options{}, enginetest.Located, 0, wide))
	if got := raw(m.alertIfDue()); got != "" {
		t.Errorf("%q", got)
	}
}

func TestCopySaysWhatMayBeIgnored(t *testing.T) {
	src := &still{state: stateAt(
		t,
		enginetest.Options{},
		enginetest.Proposed+2,
		0,
		wide,
	)}
	files := map[string]string{}
	m := quiet(t, src, Options{
		Theme: "dark",
		Now:   newClock().now,
		Save: func(name string, data []byte) (string, error) {
			files[name] = string(data)
			return "/state/" + name, nil
		},
	}, 120, 40)
	for _, c := range []struct{ page, key, file, want string }{
		{"1", "y", "copied.txt", "GPU degradation"},
		{"2", "y", "copied.txt", "rank 2 on n1.g0"},
		{"8", "y", "copied.txt", "S2 proposed"},
		{"5", "Y", "link.txt", "inc/INC-0001"},
		{"2", "Y", "link.txt", "rank/2?view=ranks"},
	} {
		send(m, c.page)
		clear(files)
		_, cmd := m.Update(keyMsg(c.key))
		batch, ok := cmd().(tea.BatchMsg)
		if !ok ||
			len(batch) != 2 ||
			fmt.Sprintf("%T", batch[0]()) != "tea.setClipboardMsg" {
			t.Fatalf("page %s, key %s: %v", c.page, c.key, batch)
		}
		m.Update(batch[1]())
		if !strings.Contains(files[c.file], c.want) ||
			!containsAll(m.notes.text, "terminal may ignore it", "/state/"+c.file) {
			t.Errorf("page %s, key %s: %q, toast %q", c.page, c.key, files, m.notes.text)
		}
	}
}

func TestClipboardIsBounded(t *testing.T) {
	long := strings.Repeat(strings.Repeat("x", 99)+"\n", 100)
	if clip, whole := fitClipboard(long); whole ||
		len(clip) > clipboardMax ||
		strings.HasSuffix(clip, "\n") ||
		len(clip)%100 != 99 {
		t.Errorf("%d bytes, whole %v", len(clip), whole)
	}
	if clip, whole := fitClipboard(strings.Repeat("é", clipboardMax)); whole ||
		len(clip) > clipboardMax ||
		strings.ContainsRune(clip, '\ufffd') {
		t.Errorf("%d bytes", len(clip))
	}
}

// meet is what the console asks a terminal of this environment.
func meet(m *Model, env tea.EnvMsg) tea.Cmd {
	_, cmd := m.Update(env)
	return cmd
}
