package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// guideStep is one block of the page: what is typed, or a file.
type guideStep struct {
	on    string // a machine, "each node" or "the laptop"
	file  string // of a file its path
	stays bool   // the last command goes on
	text  string
}

var (
	guideBlock = regexp.MustCompile("(?s) *```(sh|yaml)\n(.*?)\n *```\n")
	guideHead  = regexp.MustCompile(`^# on (.*?)(, stays)?$`)
	guideFile  = regexp.MustCompile(`^# (.*): (/.*)$`)
)

// guideSteps reads the steps of the page's first section.
func guideSteps(t *testing.T) []guideStep {
	t.Helper()
	page, err := os.ReadFile("../../docs/cluster.md")
	if err != nil {
		t.Fatal(err)
	}
	_, section, _ := strings.Cut(string(page), "## From nothing to a watched job")
	section, _, _ = strings.Cut(section, "\n## ")
	var out []guideStep
	for _, m := range guideBlock.FindAllStringSubmatch(section, -1) {
		lines := strings.Split(m[2], "\n")
		for i := range lines {
			lines[i] = strings.TrimPrefix(lines[i], "   ")
		}
		s := guideStep{text: strings.Join(lines[1:], "\n") + "\n"}
		if head := guideHead.FindStringSubmatch(lines[0]); m[1] == "sh" && head != nil {
			s.on = head[1]
			s.stays = head[2] != ""
		} else if file := guideFile.FindStringSubmatch(lines[0]); m[1] == "yaml" && file != nil {
			s.on, s.file = file[1], file[2]
		} else {
			t.Fatalf("a block that says neither where it is typed nor which file it is: %s", lines[0])
		}
		out = append(out, s)
	}
	return out
}

// Each block of the guide says where it belongs, and its files can be read by the programs.
func TestGuideIsWhole(t *testing.T) {
	typed := 0
	files := map[string]bool{}
	for _, s := range guideSteps(t) {
		if s.file == "" {
			typed++
		}
		files[s.file] = true
	}
	for _, s := range guideSteps(t) {
		if strings.HasSuffix(s.file, "falcon.yaml") &&
			!strings.Contains(s.text, "policy: {mode: observe, recovery: {approval: person}}") {
			t.Errorf("the guide does not begin by watching:\n%s", s.text)
		}
	}
	if typed < 6 || !files["/var/lib/falcon/falcon.yaml"] || !files["/etc/falcon/agent.yaml"] {
		t.Errorf("%d blocks are typed, files %v", typed, files)
	}
}

// guide are the machines of the guide: each is a network and a file system of its own.
type guide struct {
	t    *testing.T
	ctx  context.Context
	dir  string
	pids map[string]int
}

var guideNodes = []string{"n1", "n2", "n3", "n4"}

// The guide is typed as it stands: at its end the job is watched, from the engine's
// machine and from a laptop.
func TestGuide(t *testing.T) {
	if testing.Short() {
		t.Skip("seconds, and network namespaces")
	}
	if os.Getuid() != 0 {
		t.Skip("network namespaces need root")
	}
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	t.Cleanup(cancel)
	g := &guide{t, ctx, t.TempDir(), map[string]int{}}
	g.build()
	began := time.Now()
	for _, s := range guideSteps(t) {
		for _, machine := range g.machines(s.on) {
			g.do(machine, s)
		}
	}
	t.Logf("typed in %.0f s", time.Since(began).Seconds())
	said, err := os.ReadFile(filepath.Join(g.dir, "head.log"))
	if err != nil ||
		!strings.Contains(string(said), "kind=agent about=n1") ||
		!strings.Contains(string(said), "4 ranks") {
		t.Errorf("an event is no line of the engine's log, %v:\n%s", err, said)
	}
	t.Run("a name that the certificate lacks", g.otherName)
	t.Run("a revoked agent", g.revoked)
}

// otherName calls the engine by a name that its certificate lacks: the caller says which names it has
// and what to do, and the engine that a caller has gone.
func (g *guide) otherName(t *testing.T) {
	for _, machine := range []string{"laptop", "n3"} {
		g.must(machine, "echo 10.77.0.1 head2 >> /etc/hosts")
	}
	g.must(
		"head",
		"export FALCON_STATE_DIR=/var/lib/falcon; /opt/falcon/falcon certs issue --role viewer --name lee --for head2:7440; scp /var/lib/falcon/certs/lee.falcon laptop:/root/",
	)
	out, err := g.shell(
		"laptop",
		"/opt/falcon/falcon context join /root/lee.falcon; /opt/falcon/falcon console --connect head2:7440 --once",
	).CombinedOutput()
	g.says(t, "the laptop", string(out), "certificate is valid for ", "not head2", "--host", "--server-name")
	if err == nil {
		t.Error("a console that reaches nobody ends with success")
	}
	out, _ = g.shell(
		"n3",
		"mkdir -m 0700 /opt/shm; sed 's/head:/head2:/; $a shm_dir: /opt/shm' /etc/falcon/agent.yaml > /opt/agent.yaml; timeout 5 /opt/falcon/falcon-agent --config /opt/agent.yaml",
	).CombinedOutput()
	g.says(t, "the agent", string(out), "certificate is valid for ", "not head2", "server_name in agent.yaml")
	g.awaitLog(t, "head", "10.77.0.", "bad certificate")
}

// revoked takes an agent's certificate back: it is reported, and so is whoever reads the engine's log.
func (g *guide) revoked(t *testing.T) {
	g.must("head", "/opt/falcon/falcon certs revoke n4 --dir /var/lib/falcon/certs")
	g.awaitLog(t, "n4", "revoked", "falcon certs issue --role agent")
	g.awaitLog(t, "head", "n4", "revoked")
}

// says wants all of some words in what was said.
func (g *guide) says(t *testing.T, who, said string, words ...string) {
	t.Helper()
	for _, w := range words {
		if !strings.Contains(said, w) {
			t.Errorf("%s does not say %q:\n%s", who, w, said)
		}
	}
}

// awaitLog waits for a line of a machine's log that has all of some words.
func (g *guide) awaitLog(t *testing.T, machine string, words ...string) {
	t.Helper()
	waitFor(t, 30*time.Second, machine+" says "+strings.Join(words, ", "), func() bool {
		said, _ := os.ReadFile(filepath.Join(g.dir, machine+".log"))
		for line := range strings.Lines(string(said)) {
			if !slices.ContainsFunc(words, func(w string) bool {
				return !strings.Contains(line, w)
			}) {
				t.Logf("%s: %s", machine, line)
				return true
			}
		}
		return false
	})
}

func (g *guide) machines(on string) []string {
	switch on {
	case "each node":
		return guideNodes
	case "the laptop":
		return []string{"laptop"}
	}
	return []string{on}
}

// build makes the machines: a bridge joins them, and each has what a newcomer finds there.
func (g *guide) build() {
	bin, err := filepath.Abs(*labBin)
	if err != nil {
		g.t.Fatal(err)
	}
	hub := g.machine("hub")
	hosts := "127.0.0.1 localhost\n"
	names := append([]string{"head", "laptop"}, guideNodes...)
	for i, name := range names {
		hosts += fmt.Sprintf("10.77.0.%d %s\n", i+1, name)
	}
	g.must(hub, "ip link add br0 type bridge && ip link set br0 up")
	g.write("hosts", hosts, 0o644)
	for _, s := range []struct{ name, text string }{
		{
			"scp",
			"#!/bin/sh\nfor last; do :; done\nhost=${last%%:*} dir=${last#*:}\nwhile [ $# -gt 1 ]; do cat \"$1\" | nsenter -t $(cat " + g.dir + "/$host.pid) -m sh -c \"umask 077; cat > $dir/$(basename $1)\"; shift; done\n",
		},
		{
			"srun",
			"#!/bin/sh\nwhile [ \"${1#-}\" != \"$1\" ]; do shift; done\nfor n in 1 2 3 4; do RANK=$((n-1)) WORLD_SIZE=4 LOCAL_RANK=0 LOCAL_WORLD_SIZE=1 nsenter -t $(cat " + g.dir + "/n$n.pid) -m -n -u \"$@\" & done\nwait\n",
		},
		{
			"python3",
			"#!/bin/sh\nexport LD_LIBRARY_PATH=" + bin +
				"/lib FALCON_LAB_ADDR=$(sed -n \"s/ $(hostname)$//p\" /etc/hosts)\nexec " + bin +
				"/falcon-trainer --dp 4 --iterations 20000 --fwd-ms 10 --rendezvous " + g.dir + "/meet\n",
		},
	} {
		g.write("bin/"+s.name, s.text, 0o755)
	}
	if err := os.Mkdir(filepath.Join(g.dir, "meet"), 0o700); err != nil {
		g.t.Fatal(err)
	}
	for i, name := range names {
		g.machine(name)
		pid := strconv.Itoa(g.pids[name])
		g.must(
			hub,
			"ip link add v"+pid+" type veth peer name eth0 netns "+pid+" && ip link set v"+pid+
				" master br0 up",
		)
		what := "cp bin/falcon"
		if strings.HasPrefix(name, "n") {
			what = "mkdir /opt/falcon/lib; cp bin/lib/libfalcon_hook.so bin/lib/libnccl-profiler-falcon.so /opt/falcon/lib/; mkdir /etc/falcon; cp bin/falcon-agent"
		}
		g.must(name, strings.ReplaceAll(strings.Join([]string{
			"hostname " + name,
			"ip link set lo up",
			fmt.Sprintf("ip addr add 10.77.0.%d/24 dev eth0", i+1),
			"ip link set eth0 up",
			"mkdir -p DIR/etc." + name,
			"cp -a /etc/. DIR/etc." + name,
			"mount --bind DIR/etc." + name + " /etc",
			"cp DIR/hosts /etc/hosts",
			"mount -t tmpfs tmpfs /opt",
			"mkdir /opt/falcon",
			strings.ReplaceAll(what, "bin/", bin+"/") + " /opt/falcon/",
			"mount -t tmpfs tmpfs /var/lib",
			"mkdir -p /var/lib/falcon",
			"mount -t tmpfs tmpfs /root",
			"mount -t tmpfs tmpfs /dev/shm",
		}, " && "), "DIR", g.dir))
	}
}

// machine starts the process that holds a machine's namespaces.
func (g *guide) machine(name string) string {
	c := exec.CommandContext(
		g.ctx,
		"unshare",
		"-m",
		"-n",
		"-u",
		"--propagation", "private",
		"sleep",
		"600",
	)
	if err := c.Start(); err != nil {
		g.t.Fatal(err)
	}
	network := ""
	g.t.Cleanup(func() { // by now the test's context has ended the process
		killNamespace(network)
		_ = c.Process.Kill()
		_ = c.Wait()
	})
	g.pids[name] = c.Process.Pid
	g.write(name+".pid", strconv.Itoa(c.Process.Pid), 0o644)
	waitFor(g.t, 10*time.Second, name, func() bool { // unshare has become sleep
		text, _ := os.ReadFile(fmt.Sprintf("/proc/%d/comm", c.Process.Pid))
		return strings.TrimSpace(string(text)) == "sleep"
	})
	network, _ = os.Readlink(fmt.Sprintf("/proc/%d/ns/net", c.Process.Pid))
	return name
}

// killNamespace ends all processes in a network namespace that the test has made: ranks that a
// launcher has started outlive it.
func killNamespace(network string) {
	if mine, err := os.Readlink("/proc/self/ns/net"); err != nil || network == "" || network == mine {
		return
	}
	all, _ := filepath.Glob("/proc/[0-9]*")
	for _, dir := range all {
		pid, err := strconv.Atoi(filepath.Base(dir))
		if err != nil {
			continue
		}
		if of, err := os.Readlink(filepath.Join(dir, "ns/net")); err == nil && of == network {
			_ = syscall.Kill(pid, syscall.SIGKILL)
		}
	}
}

func (g *guide) write(name, text string, mode os.FileMode) {
	path := filepath.Join(g.dir, name)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		g.t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), mode); err != nil {
		g.t.Fatal(err)
	}
}

// shell is a shell on a machine, in which nothing is set but what a login sets.
func (g *guide) shell(machine, text string) *exec.Cmd {
	c := exec.CommandContext(
		g.ctx,
		"nsenter",
		"-t", strconv.Itoa(g.pids[machine]),
		"-m",
		"-n",
		"-u", "bash",
		"-e",
		"-c", text,
	)
	c.Env = []string{"HOME=/root", "TERM=dumb", "PATH=" + g.dir + "/bin:/usr/sbin:/usr/bin:/sbin:/bin"}
	return c
}

func (g *guide) must(machine, text string) string {
	out, err := g.shell(machine, text).CombinedOutput()
	if err != nil {
		g.t.Fatalf("on %s: %s\n%s\n%v", machine, text, out, err)
	}
	return string(out)
}

// do types a step, or writes its file. What stays is waited for until it says that it is there; a
// look is taken again until the job is seen, as a newcomer would.
func (g *guide) do(machine string, s guideStep) {
	switch {
	case s.file != "":
		g.must(machine, "cat > "+s.file+" <<'END'\n"+s.text+"END")
	case s.stays:
		g.stay(machine, s.text)
	case strings.Contains(s.text, "console"):
		look, rest, _ := strings.Cut(s.text, "--once\n")
		last := ""
		for g.ctx.Err() == nil && !strings.Contains(last, "running") {
			last = g.must(machine, look+"--once\n")
			look = strings.Replace(look, "falcon context join /root/dana.falcon\n", "", 1) // once
		}
		g.t.Logf("%s sees\n%s", machine, last)
		g.must(machine, guideExports(s.text)+rest)
	default:
		g.must(machine, s.text)
	}
}

// guideExports are the lines of a block that set variables.
func guideExports(text string) (out string) {
	for _, l := range strings.Split(text, "\n") {
		if strings.HasPrefix(l, "export ") {
			out += l + "\n"
		}
	}
	return out
}

// there is what shows that a program which stays is at work.
var guideThere = map[string]string{
	"falcon serve":          "listening on",
	"falcon-agent --config": "attached to the engine",
}

func (g *guide) stay(machine, text string) {
	log := filepath.Join(g.dir, machine+".log")
	f, err := os.OpenFile(log, os.O_CREATE|os.O_APPEND|os.O_RDWR, 0o600)
	if err != nil {
		g.t.Fatal(err)
	}
	before, _ := os.ReadFile(log)
	c := g.shell(machine, text)
	c.Stdout, c.Stderr = f, f
	if err := c.Start(); err != nil {
		g.t.Fatal(err)
	}
	g.t.Cleanup(func() {
		_ = c.Process.Kill()
		_ = c.Wait()
		_ = f.Close()
		if said, _ := os.ReadFile(log); g.t.Failed() {
			g.t.Logf("%s says\n%.4000s", machine, said)
		}
	})
	for program, there := range guideThere {
		if strings.Contains(text, program) {
			waitFor(g.t, time.Minute, machine+": "+there, func() bool {
				said, _ := os.ReadFile(log)
				return strings.Contains(string(said[len(before):]), there)
			})
		}
	}
}
