module github.com/ingot-metal/ingot/tools/protoc-gen-go

go 1.26.8

tool google.golang.org/protobuf/cmd/protoc-gen-go

require google.golang.org/protobuf v1.36.12 // indirect
