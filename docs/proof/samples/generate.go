package samples

import (
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/bufbuild/protocompile"
	"google.golang.org/protobuf/cmd/protoc-gen-go/internal_gengo"
	"google.golang.org/protobuf/compiler/protogen"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protodesc"
	"google.golang.org/protobuf/types/descriptorpb"
	"google.golang.org/protobuf/types/pluginpb"
)

const (
	protoFile = "falcon/v1/falcon.proto"
	protoRoot = "backend/api"
)

// Generate is the Go code of the messages with a sample's changes; "" where it changes none.
func (s *Sample) Generate(root string) (string, error) {
	changed, ok := s.Files[protoRoot+"/"+protoFile]
	if !ok {
		return "", nil
	}
	compiler := protocompile.Compiler{
		SourceInfoMode: protocompile.SourceInfoStandard,
		Resolver: protocompile.WithStandardImports(&protocompile.SourceResolver{
			Accessor: func(path string) (io.ReadCloser, error) {
				if path == protoFile {
					return io.NopCloser(strings.NewReader(changed)), nil
				}
				return os.Open(filepath.Join(root, protoRoot, path))
			},
		}),
	}
	files, err := compiler.Compile(context.Background(), protoFile)
	if err != nil {
		return "", err
	}
	plugin, err := protogen.Options{}.New(&pluginpb.CodeGeneratorRequest{
		FileToGenerate: []string{protoFile},
		Parameter:      proto.String("paths=source_relative"),
		ProtoFile:      []*descriptorpb.FileDescriptorProto{protodesc.ToFileDescriptorProto(files[0])},
	})
	if err != nil {
		return "", err
	}
	internal_gengo.GenerateFile(plugin, plugin.Files[0])
	out := plugin.Response()
	if out.Error != nil || len(out.File) != 1 {
		return "", errors.New("protoc-gen-go: " + out.GetError())
	}
	return out.File[0].GetContent(), nil
}
