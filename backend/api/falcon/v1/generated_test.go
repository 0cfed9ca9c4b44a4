package falconv1_test

import (
	"bytes"
	"context"
	"os"
	"strings"
	"testing"

	"github.com/bufbuild/protocompile"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protodesc"
	"google.golang.org/protobuf/reflect/protoreflect"

	falconv1 "github.com/failslow/falcon/backend/api/falcon/v1"
)

// The generated code is of the .proto files beside it, comments included. A second compiler
// says so: `make proto-check` compares bytes with the first, but has to build it, which takes
// minutes.
func TestGeneratedCodeIsOfTheProto(t *testing.T) {
	compiler := protocompile.Compiler{
		Resolver: protocompile.WithStandardImports(
			&protocompile.SourceResolver{ImportPaths: []string{"../.."}},
		),
	}
	files, err := compiler.Compile(
		context.Background(),
		"falcon/v1/falcon.proto",
		"falcon/v1/record.proto",
	)
	if err != nil {
		t.Fatal(err)
	}
	generated := []protoreflect.FileDescriptor{
		falconv1.File_falcon_v1_falcon_proto,
		falconv1.File_falcon_v1_record_proto,
	}
	for i, have := range generated {
		want := protodesc.ToFileDescriptorProto(files[i])
		want.SourceCodeInfo = nil
		if !proto.Equal(want, protodesc.ToFileDescriptorProto(have)) {
			t.Errorf("%s is not what the code was generated from: run make proto", have.Path())
		}
	}
}

// Comments stand in the generated code, but for the headings of sections.
func TestGeneratedCommentsAreOfTheProto(t *testing.T) {
	var code []byte
	for _, name := range []string{"falcon.pb.go", "falcon_grpc.pb.go", "record.pb.go"} {
		b, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		code = append(code, b...)
	}
	found := map[string]bool{}
	for line := range bytes.Lines(code) {
		if _, comment, ok := strings.Cut(string(line), "//"); ok {
			found[strings.TrimSpace(comment)] = true
		}
	}
	for _, name := range []string{"falcon.proto", "record.proto"} {
		b, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		for n, line := range strings.Split(string(b), "\n") {
			_, comment, ok := strings.Cut(line, "//")
			comment = strings.TrimSpace(comment)
			if ok && !strings.HasPrefix(comment, "----") && !found[comment] {
				t.Errorf("%s:%d: the generated code lacks this comment: run make proto", name, n+1)
			}
		}
	}
}
