package abitest

import (
	"bytes"
	"flag"
	"fmt"
	"go/format"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

//go:generate go test . -update

var update = flag.Bool("update", false, "rewrite the constants that are generated from the C headers")

// prefixes of the offsets in a struct.
var prefixes = map[string]string{
	"falcon_record": "rec", "falcon_header": "hdr", "falcon_ring": "rng", "falcon_comm": "com",
	"falcon_timing": "tim", "falcon_shm_order": "ord",
	"falcon_control": "ctl", "falcon_test": "tst",
	"falcon_test_result": "res", "falcon_ended": "end", "falcon_mark": "mark",
	"falcon_lab_header": "off", "falcon_lab_gpu": "gpu", "falcon_lab_link": "link",
}

// names of constants that do not follow from those in C.
var names = map[string]string{
	"FALCON_PAGE": "pageBytes", "marks": "marksMax", "sizeof.falcon_shm_order": "orderBytes",
	"FALCON_ORDER_MICROBATCHES": "orderMicroBatches",
	"FALCON_LAB_MAGIC":          "stateMagic",
	"FALCON_LAB_VERSION":        "stateVersion", "FALCON_LAB_FILE_BYTES": "stateBytes",
	"FALCON_LAB_NODES": "nodesMax", "FALCON_LAB_GPUS": "gpusMax",
}

var initialisms = map[string]string{
	"id":  "ID",
	"ids": "IDs",
	"pid": "PID",
	"tid": "TID",
	"tp":  "TP",
	"dp":  "DP",
	"pp":  "PP",
	"tsc": "TSC",
}

// goName is ctlProfileUntilNs for falcon_control.profile_until_ns, recordBytes for
// sizeof.falcon_record and shmMagic for FALCON_SHM_MAGIC.
func goName(c string) string {
	if name := names[c]; name != "" {
		return name
	}
	if name, ok := strings.CutPrefix(c, "sizeof.falcon_"); ok {
		return camelCase("", strings.TrimPrefix(name, "lab_")) + "Bytes"
	}
	if typ, field, ok := strings.Cut(c, "."); ok {
		return camelCase(prefixes[typ], field)
	}
	return camelCase("", strings.ToLower(strings.TrimPrefix(strings.TrimPrefix(c, "FALCON_"), "LAB_")))
}

func camelCase(name, snake string) string {
	for word := range strings.SplitSeq(snake, "_") {
		switch {
		case name == "":
			name = word
		case initialisms[word] != "":
			name += initialisms[word]
		default:
			name += strings.ToUpper(word[:1]) + word[1:]
		}
	}
	return name
}

// The committed constants are those of the C headers.
func TestABI(t *testing.T) {
	for _, f := range []struct{ program, header, pkg string }{
		{"../../../native/hook/test/abi_dump.c", "falcon_shm.h", "ring"},
		{"testdata/lab_dump.c", "falcon_lab.h", "lab"},
		{"testdata/lab_dump.c", "falcon_lab.h", "host"},
	} {
		path := filepath.Join("..", "..", f.pkg, "abi_gen.go")
		want := constants(t, f.program, f.header, f.pkg)
		if *update {
			if err := os.WriteFile(path, want, 0o644); err != nil {
				t.Fatal(err)
			}
		} else if got, err := os.ReadFile(path); err != nil || !bytes.Equal(got, want) {
			t.Errorf("%s is not what %s gives (%v): run go generate ./agent/internal/abitest",
				path, f.header, err)
		}
	}
}

// constants compiles and runs a C program, which prints one "name value" per line.
func constants(t *testing.T, program, header, pkg string) []byte {
	t.Helper()
	cc, err := exec.LookPath("gcc")
	if err != nil {
		t.Skip("gcc is not installed: the constants were not compared with the C headers")
	}
	bin := filepath.Join(t.TempDir(), "dump")
	if out, err := exec.Command(
		cc,
		"-I", "../../../native/include",
		program,
		"-o", bin,
	).CombinedOutput(); err != nil {
		t.Fatalf("build %s: %v\n%s", program, err, out)
	}
	out, err := exec.Command(bin).Output()
	if err != nil {
		t.Fatal(err)
	}
	var b bytes.Buffer
	fmt.Fprintf(&b,
		"// Code generated from native/include/%s by go generate ./agent/internal/abitest. DO NOT EDIT.\n\npackage %s\n\nconst (\n",
		header, pkg)
	for line := range strings.Lines(string(out)) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), " ")
		if _, err := strconv.ParseUint(value, 10, 64); err != nil {
			t.Fatalf("%s printed %q", program, line)
		}
		fmt.Fprintf(&b, "%s = %s\n", goName(name), value)
	}
	b.WriteString(")\n")
	text, err := format.Source(b.Bytes())
	if err != nil {
		t.Fatal(err)
	}
	return text
}
