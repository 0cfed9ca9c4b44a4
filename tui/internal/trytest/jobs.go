package main

import (
	"context"
	"fmt"
	"net"
	"path/filepath"
	"time"

	"github.com/failslow/falcon"
	"github.com/failslow/falcon/tui/internal/enginetest"
)

// serveJobs serves n scripted engines on sockets in a folder, at different points of the story,
// until ctx ends: for falcon context add, and falcon console --all.
func serveJobs(ctx context.Context, dir string, n, speed int) error {
	for i := range n {
		o := enginetest.Options{
			Job:     fmt.Sprintf("llm-%02d", i+1),
			TP:      2,
			DP:      4,
			PP:      1 + i%4,
			Start:   time.Now(),
			Healthy: i%3 == 2,
			Auto:    i%5 == 1,
			Old:     i == 5,
		}
		if i%4 == 3 {
			o.Role = "viewer"
		}
		e := enginetest.New(o)
		e.AdvanceTo(int64(20 + 13*i%200))
		switch i {
		case 3:
			e.Hang(true)
		case 4:
			e.Lose(falcon.RecoveryProposed)
		case 6:
			e.Lose(falcon.RecoveryReplace)
		}
		path := filepath.Join(dir, o.Job+".sock")
		lis, err := net.Listen("unix", path)
		if err != nil {
			return err
		}
		srv := e.Serve(lis)
		defer srv.Close()
		go drive(ctx, e, speed)
		fmt.Println(path)
	}
	<-ctx.Done()
	return nil
}
