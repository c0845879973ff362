#!/usr/bin/env python3
"""A complete provider for Baton in Python's standard library; docs/provider.md walks through it.

It fills KV cells with the rows of a Qwen3 model in Q8_0 and F32, such as Baton's demo model, three
or four tokens a second. A provider that is of use has a faster device behind matvec().

    baton serve -m MODEL.gguf --prefill "exec:examples/provider.py MODEL.gguf" --prefill-min-tokens 4
"""
import array, functools, hashlib, json, math, mmap, os, select, socket, struct, sys
from operator import add, mul


class Model:
    def __init__(self, path):
        self.data = mmap.mmap(os.open(path, os.O_RDONLY), 0, prot=mmap.PROT_READ)
        self.at, (_, _, tensors, pairs) = 24, struct.unpack_from("<4sIQQ", self.data)
        meta = {self.value(8): self.value(self.value(4)) for _ in range(pairs)}
        info = {self.value(8): ([self.value(10) for _ in range(self.value(4))], self.value(4), self.value(10)) for _ in range(tensors)}
        self.info, self.start = info, (self.at + 31) // 32 * 32
        key = lambda name: meta["qwen3." + name]
        self.layers, self.heads, self.kv_heads = key("block_count"), key("attention.head_count"), key("attention.head_count_kv")
        self.dim, self.eps, self.vocab = key("attention.key_length"), key("attention.layer_norm_rms_epsilon"), info["token_embd.weight"][0][1]
        self.freq = [key("rope.freq_base") ** (-2 * i / self.dim) for i in range(self.dim // 2)]

    def value(self, kind):  # of GGUF's metadata
        if kind == 9:  # an array
            kind, n = self.value(4), self.value(10)
            return [self.value(kind) for _ in range(n)]
        code = "%ds" % self.value(10) if kind == 8 else "<" + "BbHhIif???Qqd"[kind]
        self.at += struct.calcsize(code)
        value, = struct.unpack_from(code, self.data, self.at - struct.calcsize(code))
        return value.decode("utf-8", "replace") if kind == 8 else value

    @functools.cache
    def rows(self, name, first=0, count=None):  # of a matrix; or a vector
        (width, *height), kind, offset = self.info[name]
        at, rows = self.start + offset, []
        if kind == 0:  # F32
            return array.array("f", self.data[at:at + 4 * width])
        for r in range(first, first + (count or height[0])):  # Q8_0: a scale and 32 bytes
            rows.append(array.array("f"))
            for scale, *q in struct.iter_unpack("<e32b", self.data[at + r * width // 32 * 34:at + (r + 1) * width // 32 * 34]):
                rows[-1].extend([scale * x for x in q])
        return rows

    def norm(self, x, weight):
        scale = 1 / math.sqrt(dot(x, x) / len(x) + self.eps)
        return [a * scale * w for a, w in zip(x, weight)]

    def rotated(self, x, weight, pos):  # each head normalized, then rotated
        turn, out = [(math.cos(pos * f), math.sin(pos * f)) for f in self.freq], []
        for at in range(0, len(x), self.dim):
            head = self.norm(x[at:at + self.dim], weight)
            pairs = list(zip(head, head[self.dim // 2:], turn))
            out += [a * c - b * s for a, b, (c, s) in pairs] + [b * c + a * s for a, b, (c, s) in pairs]
        return out

    def fill(self, token, pos, store, cells):  # cells[layer] are the (K, V) rows of positions before
        x = self.rows("token_embd.weight", token, 1)[0]
        for layer in range(self.layers):
            w = lambda name: self.rows("blk.%d.%s.weight" % (layer, name))
            h = self.norm(x, w("attn_norm"))
            k, v = self.rotated(matvec(w("attn_k"), h), w("attn_k_norm"), pos), matvec(w("attn_v"), h)
            cells[layer].append(store(layer, pos, k, v))
            if layer == self.layers - 1:
                return  # the rest is for the logits, which the decoder computes
            q, mixed = self.rotated(matvec(w("attn_q"), h), w("attn_q_norm"), pos), []
            for head in range(self.heads):
                kv = slice(head * self.kv_heads // self.heads * self.dim, (head * self.kv_heads // self.heads + 1) * self.dim)
                scores = [dot(q[head * self.dim:], k[kv]) / math.sqrt(self.dim) for k, _ in cells[layer]]
                weights = [math.exp(s - max(scores)) for s in scores]
                mixed += [dot(weights, column) / sum(weights) for column in zip(*(v[kv] for _, v in cells[layer]))]
            x = list(map(add, x, matvec(w("attn_output"), mixed)))
            h = self.norm(x, w("ffn_norm"))
            gated = [g / (1 + math.exp(-g)) * u for g, u in zip(matvec(w("ffn_gate"), h), matvec(w("ffn_up"), h))]
            x = list(map(add, x, matvec(w("ffn_down"), gated)))


def dot(a, b): return sum(map(mul, a, b))
def matvec(rows, x): return [dot(row, x) for row in rows]


def receive():
    head = conn.recv(8, socket.MSG_WAITALL)
    if len(head) < 8:
        sys.exit()  # the decoder has gone
    size, count = struct.unpack("<II", head)
    (kind, message), = json.loads(conn.recv(size, socket.MSG_WAITALL)).items()
    fds = []
    while len(fds) < count:  # batches: magic, received before, in this one, in all; each is confirmed
        frame, got, flags, _ = socket.recv_fds(conn, 16, 250)
        if flags & socket.MSG_CTRUNC or struct.unpack("<4sIII", frame) != (b"BNFD", len(fds), len(got), count):
            sys.exit("descriptors were lost: is their limit (ulimit -n) too low?")
        conn.sendall(struct.pack("<4sIII", b"BNAK", len(fds), len(got), 0))
        fds += got
    return kind, message, fds


def send(kind, message):
    text = json.dumps({kind: message}).encode()
    conn.sendall(struct.pack("<II", len(text), 0) + text)


def work(order, fds, layout):
    tokens, maps, where, row = order["tokens"], {}, [], struct.Struct("<%de" % (model.kv_heads * model.dim))
    try:
        if order["layout"] != layout or max(tokens) >= model.vocab:
            return {"code": "layout_differs", "error": "the layout, or a token, is not one of this model"}
        header = maps[order["header"]] = mmap.mmap(fds[order["header"]], 4096)
        for r in order["regions"]:  # where[position] is a mapping and the number of a cell in it
            prot = mmap.PROT_READ if r["mode"] == "ro" else mmap.PROT_READ | mmap.PROT_WRITE
            maps[r["fd"]] = mmap.mmap(fds[r["fd"]], layout["block_bytes"], prot=prot)
            where += [(maps[r["fd"]], cell) for cell in range(r["cell"], r["cell"] + r["cells"])]
        prompt = hashlib.sha256(struct.pack("<%di" % len(tokens), *tokens)).digest()
        struct.pack_into("<II32s32s16s", header, 8, 1, 0, bytes.fromhex(layout["digest"]), prompt, bytes.fromhex(order["ticket"]))
        struct.pack_into("<Q", header, 128, order["pos0"])
        header[0:8] = b"BATONKV1"
        places = lambda layer, pos: [(where[pos][0], layout[t + "_offsets"][layer] + where[pos][1] * layout[t + "_row_bytes"]) for t in "kv"]
        load = lambda layer, pos: [row.unpack_from(*place) for place in places(layer, pos)]

        def store(layer, pos, *rows):
            for place, values in zip(places(layer, pos), rows):
                row.pack_into(*place, *values)
            return load(layer, pos)  # with what rounding has left of it

        cells = [[load(layer, pos) for pos in range(order["pos0"])] for layer in range(model.layers)]
        for pos in range(order["pos0"], len(tokens)):
            if select.select([conn], [], [], 0)[0] and receive()[1].get("ticket") == order["ticket"]:
                return {"filled": pos}  # cancelled
            model.fill(tokens[pos], pos, store, cells)
            struct.pack_into("<Q", header, 128, pos + 1)
        return {"filled": len(tokens)}
    finally:  # before the reply nothing may be mapped or open any more
        for m in maps.values():
            m.close()
        for fd in fds:
            os.close(fd)


model, conn = Model(sys.argv[1]), socket.socket(fileno=3)
send("hello", {"protocol": 1, "name": "python", "pid": os.getpid(), "layouts": [], "reads_prefix": True, "trust": ["sealed"]})
kind, welcome, _ = receive()
ours = {"layers": model.layers, "kv_heads": model.kv_heads, "head_dim": model.dim, "k_type": "f16", "v_type": "f16"}
if kind != "welcome" or any(welcome["layout"][name] != ours[name] for name in ours) or welcome["params"]["arch"] != "qwen3":
    sys.exit("the decoder has another model, or does not want us: %s" % welcome)
while kind != "bye":
    kind, message, fds = receive()
    if kind == "order":
        send("reply", {"ticket": message["ticket"], **work(message, fds, welcome["layout"])})
