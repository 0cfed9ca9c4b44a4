package main

import (
	"archive/tar"
	"archive/zip"
	"bytes"
	"compress/gzip"
	"os"
	"path/filepath"
	"testing"
)

// writeArchives writes the text as a.csv in a tar.gz, a zip and a gz, and a gz that is no gz.
func writeArchives(t *testing.T, dir, text string) {
	t.Helper()
	check := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	zipped := func(data []byte) []byte {
		var b bytes.Buffer
		w := gzip.NewWriter(&b)
		_, err := w.Write(data)
		check(err)
		check(w.Close())
		return b.Bytes()
	}
	var tarred, packed bytes.Buffer
	tw := tar.NewWriter(&tarred)
	check(tw.WriteHeader(&tar.Header{
		Name: "run/a.csv",
		Mode: 0o600,
		Size: int64(len(text)),
	}))
	_, err := tw.Write([]byte(text))
	check(err)
	check(tw.Close())
	zw := zip.NewWriter(&packed)
	member, err := zw.Create("run/a.csv")
	check(err)
	_, err = member.Write([]byte(text))
	check(err)
	check(zw.Close())
	for name, data := range map[string][]byte{
		"1.tar.gz": zipped(tarred.Bytes()),
		"2.zip":    packed.Bytes(),
		"3.csv.gz": zipped([]byte(text)),
		"4.gz":     append([]byte("\x1f\x8b"), "broken"...),
	} {
		check(os.WriteFile(filepath.Join(dir, name), data, 0o600))
	}
}
