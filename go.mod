module github.com/musterhpc/muster

go 1.26.0

// raft-boltdb/v2 v2.3.1 imports go-metrics/compat, which v0.7.0 (required by raft and memberlist) dropped. Until raft-boltdb
// moves on, the last version that has it serves all three.
replace github.com/hashicorp/go-metrics => github.com/hashicorp/go-metrics v0.6.1

require (
	google.golang.org/grpc v1.85.0
	google.golang.org/protobuf v1.36.12
)

require (
	golang.org/x/net v0.60.0 // indirect
	golang.org/x/sys v0.48.0 // indirect
	golang.org/x/text v0.42.0 // indirect
	google.golang.org/genproto/googleapis/rpc v0.0.0-20260817212433-ac3dfec99bb1 // indirect
)
