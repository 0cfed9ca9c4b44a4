package abitest

import (
	"debug/dwarf"
	"debug/elf"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/failslow/falcon/backend/api/shapetest"
)

const includeDir = "../../../native/include/"

// What two processes share by a C header has a number, which is raised with the shape: of
// the hook's file, of what frameworks call in the hook, of the lab's file.
func TestShapesOfHeaders(t *testing.T) {
	for _, c := range []struct{ header, constant, name, types string }{
		{"falcon_shm.h", "FALCON_SHM_VERSION", "the hook's file", ""},
		{
			"falcon_job.h",
			"FALCON_JOB_VERSION",
			"the adapter's interface",
			"^falcon_job_|^enum falcon_(order_kind|park_status) ",
		},
		{"falcon_lab.h", "FALCON_LAB_VERSION", "the lab's file", ""},
	} {
		text, err := os.ReadFile(includeDir + c.header)
		if err != nil {
			t.Fatal(err)
		}
		lines := append(ofDefines(string(text), c.constant), ofPrototypes(string(text))...)
		used := regexp.MustCompile(c.types)
		types := slices.DeleteFunc(ofTypes(t, c.header), func(line string) bool {
			return !used.MatchString(line)
		})
		if len(types) < 8 {
			t.Errorf("%s: only %q", c.header, types)
		}
		number, err := readNumber(string(text), c.constant)
		if err != nil {
			t.Fatal(err)
		}
		shapetest.Shape{
			Name:   c.name,
			Number: number,
			Where:  c.constant + " in native/include/" + c.header,
			Lines:  append(lines, types...),
		}.
			Check(t, "testdata/"+strings.TrimSuffix(c.header, ".h")+".shape")
	}
}

func readNumber(text, constant string) (int, error) {
	m := regexp.MustCompile(`(?m)^#define ` + constant + `\s+(\d+)u?\b`).FindStringSubmatch(text)
	if m == nil {
		return 0, fmt.Errorf("no %s is defined", constant)
	}
	return strconv.Atoi(m[1])
}

var (
	comments   = regexp.MustCompile(`(?s)/\*.*?\*/`)
	defines    = regexp.MustCompile(`(?m)^#define (FALCON_\w+(?:\([^)]*\))?) +(.+)$`)
	prototypes = regexp.MustCompile(`(?m)^[a-z][a-z0-9_ ]*\bfalcon_\w+\([^;]*\);`)
	spaces     = regexp.MustCompile(`\s+`)
)

// ofDefines lists constants: sizes, magic numbers, names.
func ofDefines(text, number string) []string {
	var lines []string
	for _, m := range defines.FindAllStringSubmatch(comments.ReplaceAllString(text, ""), -1) {
		if m[1] != number {
			lines = append(lines, spaces.ReplaceAllString("define "+m[1]+" "+strings.TrimSpace(m[2]), " "))
		}
	}
	return lines
}

// ofPrototypes lists functions as they are declared.
func ofPrototypes(text string) []string {
	var lines []string
	for _, m := range prototypes.FindAllString(comments.ReplaceAllString(text, ""), -1) {
		lines = append(lines, spaces.ReplaceAllString(m, " "))
	}
	return lines
}

// ofTypes lists what the compiler makes of a header's own structs and enumerations.
// Padding is left out: a new field in its place moves nothing.
func ofTypes(t *testing.T, header string) []string {
	t.Helper()
	cc, err := exec.LookPath("gcc")
	if err != nil {
		t.Skip("gcc is not installed: the shapes of C headers were not compared")
	}
	dir := t.TempDir()
	source := filepath.Join(dir, "shape.c")
	object := filepath.Join(dir, "shape.o")
	if err := os.WriteFile(source, []byte("#include \""+header+"\"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	args := []string{"-g", "-fno-eliminate-unused-debug-types", "-I", includeDir, "-c", source, "-o", object}
	if out, err := exec.Command(cc, args...).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	f, err := elf.Open(object)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	data, err := f.DWARF()
	if err != nil {
		t.Fatal(err)
	}
	lines, err := readTypes(data)
	if err != nil {
		t.Fatal(err)
	}
	return lines
}

func readTypes(data *dwarf.Data) ([]string, error) {
	var lines []string
	for r := data.Reader(); ; {
		e, err := r.Next()
		if e == nil || err != nil {
			return lines, err
		}
		if e.Tag != dwarf.TagTypedef &&
			e.Tag != dwarf.TagStructType &&
			e.Tag != dwarf.TagEnumerationType {
			continue
		}
		typ, err := data.Type(e.Offset)
		if err != nil {
			return nil, err
		}
		if def, ok := typ.(*dwarf.TypedefType); ok {
			typ = def.Type
		}
		lines = append(lines, ofType(typ)...)
	}
}

func ofType(typ dwarf.Type) []string {
	switch typ := typ.(type) {
	case *dwarf.StructType:
		if strings.HasPrefix(typ.StructName, "falcon_") {
			return append(ofStruct(typ.StructName, 0, typ),
				fmt.Sprintf("%s is %d bytes", typ.StructName, typ.ByteSize),
			)
		}
	case *dwarf.EnumType:
		var lines []string
		for _, v := range typ.Val {
			if strings.HasPrefix(v.Name, "FALCON_") {
				lines = append(lines, fmt.Sprintf("enum %s %s %d", typ.EnumName, v.Name, v.Val))
			}
		}
		return lines
	}
	return nil
}

func ofStruct(name string, at int64, s *dwarf.StructType) []string {
	var lines []string
	for _, f := range s.Field {
		if strings.HasPrefix(f.Name, "pad_") || strings.HasPrefix(f.Name, "reserved") {
			continue
		}
		path := name + "." + f.Name
		offset := at + f.ByteOffset
		lines = append(lines, fmt.Sprintf("%s at %d, %d bytes: %s",
			path, offset, f.Type.Size(), f.Type))
		if inner := withoutName(f.Type); inner != nil {
			lines = append(lines, ofStruct(path, offset, inner)...)
		}
	}
	return lines
}

// withoutName is a struct that is declared in its place, or an array of them.
func withoutName(typ dwarf.Type) *dwarf.StructType {
	if list, ok := typ.(*dwarf.ArrayType); ok {
		typ = list.Type
	}
	if s, ok := typ.(*dwarf.StructType); ok && s.StructName == "" {
		return s
	}
	return nil
}

// A field that changes its type, its place or its length, and a table that grows, are seen.
func TestShapeSeesChanges(t *testing.T) {
	before := "#define FALCON_N 8u /* slots */\n#define FALCON_V 5u\nint falcon_f(int a,\n  long b); void falcon_g(void);\n"
	was := strings.Join(append(ofDefines(before, "FALCON_V"), ofPrototypes(before)...), "\n")
	if was != "define FALCON_N 8u\nint falcon_f(int a, long b);" {
		t.Errorf("%q", was)
	}
	if n, err := readNumber(before, "FALCON_V"); n != 5 || err != nil {
		t.Errorf("%d, %v", n, err)
	}
	for _, after := range []string{
		strings.Replace(before, "8u", "32u", 1),
		strings.Replace(before, "long", "short", 1),
	} {
		now := strings.Join(append(ofDefines(after, "FALCON_V"), ofPrototypes(after)...), "\n")
		if now == was {
			t.Errorf("nothing is seen of %q", after)
		}
	}
}
