// Package wire is the border: the .proto files and their generated code, the converters between them and the domain's
// structs, and the muster.v1 JSON structs that HTTP and -o json share.
package wire

//go:generate go run -C ../tools -modfile go.mod ./genproto
