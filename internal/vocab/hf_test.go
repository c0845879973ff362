package vocab_test

import (
	"encoding/json"
	"fmt"
	"os"
	"strings"
)

// hfTokenizer is the part of Hugging Face's tokenizer.json that a GGUF file carries too.
type hfTokenizer struct {
	Added []struct {
		ID      int32  `json:"id"`
		Content string `json:"content"`
		Special bool   `json:"special"`
	} `json:"added_tokens"`
	Model struct {
		Vocab  map[string]int32  `json:"vocab"`
		Merges []json.RawMessage `json:"merges"` // "a b" or ["a", "b"]
	} `json:"model"`
}

// readHF converts a tokenizer.json to the metadata of a GGUF file as llama.cpp's
// convert_hf_to_gguf.py does: added tokens become control or user-defined tokens, ids that
// nothing names unused ones. For SentencePiece (pre is empty) the scores are minus the id, the
// order in which SentencePiece's BPE trainer emits its pieces, and -1e9 for the runs of
// spaces that Llama's and Mistral's vocabularies add to them: tokenizer.json ranks them last.
func readHF(path, pre string) (metadata, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	var hf hfTokenizer
	if err := json.Unmarshal(data, &hf); err != nil {
		return nil, err
	}
	size := int32(0)
	for _, id := range hf.Model.Vocab {
		size = max(size, id+1)
	}
	for _, a := range hf.Added {
		size = max(size, a.ID+1)
	}
	tokens, types := make([]string, size), make([]int32, size)
	for i := range tokens {
		tokens[i], types[i] = fmt.Sprintf("[PAD%d]", i), 5
	}
	for t, id := range hf.Model.Vocab {
		tokens[id], types[id] = t, 1
		if pre == "" && len(t) == 6 && strings.HasPrefix(t, "<0x") {
			types[id] = 6
		}
	}
	for _, a := range hf.Added {
		// A user-defined token is looked for in raw text: its space marks become spaces.
		tokens[a.ID], types[a.ID] = strings.ReplaceAll(a.Content, "▁", " "), 4
		if a.Special {
			tokens[a.ID], types[a.ID] = a.Content, 3
		}
		if a.Content == "<unk>" {
			types[a.ID] = 2
		}
	}
	md := metadata{"tokenizer.ggml.tokens": tokens, "tokenizer.ggml.token_type": types}
	if pre == "" {
		scores := make([]float32, size)
		for i := range scores {
			scores[i] = -float32(i)
			if strings.Trim(tokens[i], "▁") == "" && tokens[i] != "▁" {
				scores[i] = -1e9
			}
		}
		md["tokenizer.ggml.model"], md["tokenizer.ggml.scores"] = "llama", scores
		return md, nil
	}
	var merges []string
	for _, raw := range hf.Model.Merges {
		var m string
		var pair []string
		if json.Unmarshal(raw, &m) != nil {
			if err := json.Unmarshal(raw, &pair); err != nil {
				return nil, err
			}
			m = strings.Join(pair, " ")
		}
		merges = append(merges, m)
	}
	md["tokenizer.ggml.model"], md["tokenizer.ggml.pre"], md["tokenizer.ggml.merges"] = "gpt2", pre, merges
	return md, nil
}
