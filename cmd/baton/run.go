package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/schollz/progressbar/v3"
	"golang.org/x/term"

	"baton/internal/cli"
	"baton/internal/decoder"
	"baton/internal/engine"
	"baton/internal/load"
)

// run answers one prompt in the terminal: text on stdout, everything else on stderr.
func run(ctx context.Context, args []string, out io.Writer) error {
	s := cli.NewSet("run", "[options] PROMPT", "Answers a prompt in the terminal. PROMPT - reads it from standard input.")
	var (
		path    = s.String("-m --model", "BATON_MODEL LLAMA_ARG_MODEL", "FILE", "", "GGUF file; without it the built-in demo model")
		n       = s.Int("-n --n-predict", "BATON_N_PREDICT LLAMA_ARG_N_PREDICT", "N", 256, -1, 1<<30, "tokens to generate; -1: until the model stops or the context is full")
		ctxSize = s.Int("-c --ctx-size", "BATON_CTX_SIZE LLAMA_ARG_CTX_SIZE", "N", 0, 0, 1<<30, "context; 0: as much as the prompt and the answer need")
		threads = s.Int("-t --threads", "BATON_THREADS LLAMA_ARG_THREADS", "N", 0, 0, 1024, "threads; 0: the cores that this process may use")
		temp    = s.Float("--temp --temperature", "BATON_TEMP", "T", 0.8, 0, 100, "temperature; 0: always the most likely token")
		seed    = s.Int("-s --seed", "BATON_SEED", "N", -1, -1, 1<<62, "seed of the random numbers; -1: a random one")
		system  = s.String("--system -sys", "", "TEXT", "", "system message; implies --chat")
		useChat = s.Bool("--chat", "", "apply the model's chat template: PROMPT is a user message")
	)
	rest, err := s.Parse(args, out)
	if err != nil {
		return asUsage(err)
	}
	if len(rest) == 0 {
		return fmt.Errorf("%w: baton run needs a prompt: baton run \"Once upon a time\"", errUsage)
	}
	prompt, err := readPrompt(strings.Join(rest, " "))
	if err != nil {
		return err
	}
	b, err := load.Open(*path)
	if err != nil {
		return err
	}
	defer b.Close()
	for _, note := range b.Notes {
		fmt.Fprintln(os.Stderr, "baton: note:", note)
	}
	ids, err := promptTokens(b, prompt, *system, *useChat || *system != "")
	if err != nil {
		return err
	}
	if *ctxSize == 0 {
		*ctxSize = b.Model.CtxTrain
		if *n >= 0 {
			*ctxSize = min(b.Model.CtxTrain, len(ids)+*n+16)
		}
	}
	d, err := decoder.New(b.Model, b.Vocab, decoder.Options{Slots: 1, Ctx: max(*ctxSize, 16), Threads: *threads, Name: b.Name, Path: b.Path})
	if err != nil {
		return err
	}
	defer d.Close(ctx)

	r := engine.NewRequest(ids)
	r.MaxTokens, r.Progress = *n, true
	r.Sampling.Temperature, r.Sampling.Seed = float32(*temp), int64(*seed)
	return stream(ctx, d, r, out)
}

// readPrompt returns the prompt; from standard input without its last line end, which
// editors and echo add.
func readPrompt(arg string) (string, error) {
	if arg != "-" {
		return arg, nil
	}
	text, err := io.ReadAll(os.Stdin)
	if err != nil {
		return "", fmt.Errorf("reading the prompt: %w", err)
	}
	return strings.TrimSuffix(string(text), "\n"), nil
}

// promptTokens turns the prompt into ids: as it stands, or through the chat template.
func promptTokens(b *load.Bundle, prompt, system string, useChat bool) ([]int32, error) {
	if useChat {
		return b.EncodeChat(system, prompt)
	}
	return load.Tokenizer{Vocab: b.Vocab}.Encode(prompt, true, true), nil
}

// stream prints the answer as it comes, with a progress bar while a long prompt is
// processed and the speed at the end, both on stderr.
func stream(ctx context.Context, d *decoder.Decoder, r *engine.Request, out io.Writer) error {
	st, err := d.Generate(ctx, r)
	if err != nil {
		return err
	}
	w := bufio.NewWriter(out)
	defer w.Flush()
	bar := newProgress("prompt")
	for {
		e, err := st.Recv(ctx)
		if err != nil {
			bar.done()
			if errors.Is(err, context.Canceled) {
				fmt.Fprintln(w)
				return errors.New("interrupted")
			}
			return err
		}
		switch e.Kind {
		case engine.Progress:
			bar.set(e.Prompt, e.PromptOf)
		case engine.Token:
			bar.done()
			w.WriteString(e.Text)
		case engine.Done:
			bar.done()
			w.WriteString(e.Result.Text + "\n")
			if e.Result.Reason == engine.Failed {
				return e.Result.Err
			}
			w.Flush()
			printSpeed(e.Result.Timings)
			return nil
		}
		if err := w.Flush(); err != nil {
			return fmt.Errorf("writing the answer: %w", err)
		}
	}
}

func printSpeed(t engine.Timings) {
	rate := func(n int, d time.Duration) string {
		if n == 0 || d <= 0 {
			return "-"
		}
		return fmt.Sprintf("%.1f tokens/s", float64(n)/d.Seconds())
	}
	fmt.Fprintf(os.Stderr, "\nprompt: %d tokens, %s; answer: %d tokens, %s\n",
		t.PromptN, rate(t.PromptN, t.Prompt), t.PredictedN, rate(t.PredictedN-1, t.Predicted))
}

// progress is a bar on stderr, shown only on a terminal and only when a prompt takes
// more than one step.
type progress struct {
	what string
	bar  *progressbar.ProgressBar
	on   bool
}

func newProgress(what string) *progress {
	return &progress{what: what, on: term.IsTerminal(int(os.Stderr.Fd())) && os.Getenv("TERM") != "dumb"}
}

func (p *progress) set(done, of int) {
	if !p.on || p.bar == nil && done >= of {
		return
	}
	if p.bar == nil {
		p.bar = progressbar.NewOptions(of, progressbar.OptionSetWriter(os.Stderr), progressbar.OptionSetDescription(p.what),
			progressbar.OptionShowCount(), progressbar.OptionClearOnFinish(), progressbar.OptionEnableColorCodes(false))
	}
	_ = p.bar.Set(done)
}

func (p *progress) done() {
	if p.bar != nil {
		_ = p.bar.Clear()
		p.bar, p.on = nil, false
	}
}

// asUsage marks a mistake in the command line; help is none.
func asUsage(err error) error {
	if errors.Is(err, cli.ErrHelp) {
		return err
	}
	return fmt.Errorf("%w: %w", errUsage, err)
}
