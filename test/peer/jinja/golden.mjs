// Renders every template with every conversation with the JavaScript
// implementation of Hugging Face, and prints JSON as golden.py does.
//
//     node golden.mjs NODE_MODULES TEMPLATES CONVERSATIONS
//
// NODE_MODULES is a directory that holds @huggingface/jinja.

import fs from "node:fs";
import path from "node:path";
import { pathToFileURL } from "node:url";

const [modules, templates, conversationsFile] = process.argv.slice(2);
const entry = path.join(path.resolve(modules), "@huggingface", "jinja", "dist", "index.js");
const { Template } = await import(pathToFileURL(entry));

// The moment at which all goldens are rendered; strftime_now reads the clock.
const RealDate = Date;
const now = new RealDate(2026, 6, 4, 9, 5, 3);
globalThis.Date = class extends RealDate {
  constructor(...args) {
    super(...(args.length ? args : [now.getTime()]));
  }
  static now() {
    return now.getTime();
  }
};

function render(template, variables) {
  try {
    const text = new Template(template).render({
      bos_token: "<bos>",
      eos_token: "<eos>",
      ...variables,
    });
    return { text };
  } catch (e) {
    // raise_exception throws an error like any other here.
    return { error: e.message };
  }
}

const conversations = JSON.parse(fs.readFileSync(conversationsFile, "utf8"));
const out = {};
for (const file of fs.readdirSync(templates).filter((f) => f.endsWith(".jinja")).sort()) {
  const template = fs.readFileSync(path.join(templates, file), "utf8");
  const renders = {};
  for (const [name, variables] of Object.entries(conversations)) {
    renders[name] = render(template, variables);
  }
  out[path.basename(file, ".jinja")] = renders;
}
process.stdout.write(JSON.stringify(out));
