module github.com/ingot-metal/ingot/tools/cliarchive

go 1.26.0
