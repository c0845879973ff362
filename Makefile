# The few targets people use. Everything else is plain `go` commands.

GO ?= go
FUZZTIME ?= 20s

.PHONY: build test race fuzz lint peer bench slow

build: ## the binary, into bin/baton
	CGO_ENABLED=0 $(GO) build -trimpath -o bin/baton ./cmd/baton

test: ## all tests; nothing but Go is needed
	$(GO) test ./...

race: ## the race detector where concurrency lives (needs gcc)
	bash .ci/run race

fuzz: ## every fuzz target for FUZZTIME each
	FUZZTIME=$(FUZZTIME) bash .ci/run fuzz

lint: ## format, vet on every supported build, golangci-lint
	bash .ci/run format vet lint

peer: ## compare with llama.cpp, reference tokenizers and templates, OpenAI's clients
	bash test/peer/run.sh

bench: ## the kernels' and the engine's benchmarks
	$(GO) test -run '^$$' -bench . -benchmem ./...

slow: ## the tests that take minutes, too
	BATON_SLOW=1 $(GO) test -count=1 -timeout 60m ./...
