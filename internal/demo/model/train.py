#!/usr/bin/env python3
"""Trains the demo model.  See README.md.

    train.py --corpus .corpus/corpus.json.xz --out DIR --seconds 400 [--total 400] [--state FILE] [--smoke]

The schedule follows the clock: progress = seconds trained / --total.
"""
import argparse, json, lzma, math, multiprocessing as mp, os, re, sys, threading, time, queue
import numpy as np

here = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, here)
import bpe, synth, model

ap = argparse.ArgumentParser()
ap.add_argument("--corpus")
ap.add_argument("--out")
ap.add_argument("--seconds", type=float, default=60)
ap.add_argument("--total", type=float, default=0)
ap.add_argument("--state", default="demo-state.pt")
ap.add_argument("--lr", type=float, default=4e-3)
ap.add_argument("--lr-emb", type=float, default=3e-3)
ap.add_argument("--wd", type=float, default=0.1)
ap.add_argument("--tokens", type=int, default=128000)
ap.add_argument("--workers", type=int, default=13)
ap.add_argument("--smoke", action="store_true")
ap.add_argument("--cpu", action="store_true")
ap.add_argument("--init", default="", help="prefix of f16 weights to start from (PREFIX.0, PREFIX.1)")
ap.add_argument("--drop", type=float, default=0.13, help="dropout on story rows")
A = ap.parse_args()
A.total = A.total or A.seconds
T0 = time.time()


def say(*a):
    print("[%6.1f]" % (time.time() - T0), *a, flush=True)


SIZES = (256, 512, 1280, 2560)
NOTES = re.compile(r"^(Source|Parallels|Remarks)\b|\bin [A-Z][a-z]+, [A-Z].*;|Folk-?Lore Journal|\bcf\.|, p\. ?\d|\bpp?\. \d")
TOK = bpe.Tokenizer(os.path.join(here, "tokenizer.json"))
DATA = {}


def size_mix(p):
    """share of the row sizes at progress p"""
    if p < 0.2:
        return (0.5, 0.5, 0, 0)
    if p < 0.45:
        return (0.1, 0.25, 0.35, 0.3)
    return (0.05, 0.1, 0.2, 0.65)


def kind_mix(p):
    """story A, story B, story C, recall, chats, short tales"""
    if p < 0.2:
        return (0.03, 0.07, 0.16, 0.60, 0.10, 0.04)
    if p < 0.65:
        return (0.03, 0.07, 0.16, 0.62, 0.09, 0.03)
    return (0.045, 0.08, 0.135, 0.61, 0.09, 0.04)


def encode_docs(docs):
    """-> uint16 ids of all docs joined with <|endoftext|>, and the paragraph starts"""
    ids, starts = [], []
    for d in docs:
        for i, p in enumerate(d):
            starts.append(len(ids))
            ids += TOK.encode(p + ("\n\n" if i + 1 < len(d) else ""))
        ids.append(TOK.eot)
    return np.array(ids, np.uint16), np.array(starts, np.int64)


def load(path, pool_size):
    with lzma.open(path, "rt") as f:
        t = json.load(f)
    for k in t:
        if k in ("A", "val"):
            t[k] = [[p for p in d if not NOTES.search(p)] for d in t[k]]
        t[k] = [d for d in t[k] if sum(map(len, d)) > 300]
    if A.smoke and A.cpu:
        t = {k: v[:40] for k, v in t.items()}
    say("corpus read", {k: len(v) for k, v in t.items()})
    with mp.Pool(pool_size) as pool:
        for k in t:
            n = max(1, len(t[k]) // (pool_size * 4))
            parts = pool.map(encode_docs, [t[k][i:i + n] for i in range(0, len(t[k]), n)])
            off, starts = 0, []
            for a, s in parts:
                starts.append(s + off)
                off += len(a)
            DATA[k] = (np.concatenate([a for a, _ in parts]), np.concatenate(starts))
            say("tokens", k, off)
    DATA["stories"] = t["A"] + t["B"] + t["C"]
    titles = re.compile(r"^(By|From|To|Englished|In|Story)\b|[:;!?]|\b(Day|Chapter)\b")
    DATA["tales"] = [d for d in t["A"] if len(d) > 2 and 4 < len(d[0]) < 45 and not titles.search(d[0]) and d[0][-1] not in ".,'\""]
    say("tales with a title", len(DATA["tales"]))
    DATA["valdocs"] = t["val"]
    synth.wild_words(t["A"] + t["B"] + t["val"])
    say("words", {k: len(v) for k, v in synth.WILD.items()})


def worker(seed, q, prog, n_tok):
    rng = np.random.default_rng(seed)
    mk = synth.Maker(TOK, DATA["stories"], seed, DATA["tales"])
    while True:
        p = prog.value
        size = SIZES[rng.choice(4, p=size_mix(p))]
        rows = n_tok // size
        ids = np.empty((rows, size + 1), np.uint16)
        wt = np.empty((rows, size + 1), np.float16)
        kinds = rng.choice(6, rows, p=kind_mix(p))
        for i, k in enumerate(kinds):
            if k < 3:
                a, st = DATA["ABC"[k]]
                s = int(st[rng.integers(len(st))])
                s = min(s, len(a) - size - 1)
                ids[i] = a[s:s + size + 1]
                wt[i] = 1
            else:
                f = (mk.recall_row, mk.chat_row, mk.tale_row)[k - 3]
                x, y = f(size)
                ids[i], wt[i] = x, y
        q.put((size, ids, wt, kinds.astype(np.int8)))


def main():
    import torch
    import torch.nn.functional as F
    dev = "cpu" if A.cpu else "cuda"
    c = dict(model.CFG)
    load(A.corpus, max(1, os.cpu_count() or 1))
    prog = mp.Value("d", 0.0)
    q = mp.Queue(32)
    procs = [mp.Process(target=worker, args=(1000 + i + int(time.time()) % 100000 * 100, q, prog, A.tokens), daemon=True) for i in range(A.workers)]
    for p in procs:
        p.start()
    torch.manual_seed(1)
    if not A.cpu:
        torch.backends.cuda.matmul.allow_tf32 = True
        say(torch.__version__, torch.cuda.get_device_name())
    w = {k: v.requires_grad_() for k, v in model.init(c, 1, dev).items()}
    n_par = sum(v.numel() for v in w.values())
    say("parameters", n_par)
    H, K, hd, eps = c["heads"], c["kv_heads"], c["head_dim"], c["eps"]
    bf = torch.bfloat16
    tables = {s: tuple(t.repeat(A.tokens // s, 1)[:, None].contiguous() for t in model.rope_tables(c, s, dev)) for s in SIZES}

    def lin(x, m):
        return x.to(bf) @ m.to(bf).T

    def pre(x, wn, wq, wk, wv, qn, kn, cos, sin):
        h = model.rms(x, wn, eps)
        n = x.shape[0]
        q_ = lin(h, wq).view(n, H, hd)
        k_ = lin(h, wk).view(n, K, hd)
        v_ = lin(h, wv).view(n, K, hd)
        q_ = model.rotate(model.rms(q_, qn, eps), cos, sin).to(bf)
        k_ = model.rotate(model.rms(k_, kn, eps), cos, sin).to(bf)
        return q_, k_, v_

    def post(x, o, pd, wo, wn, wg, wu, wd):
        y = lin(o, wo).float()
        x = x + y * (torch.rand_like(y) >= pd) / (1 - pd)
        h = model.rms(x, wn, eps)
        y = lin(F.silu(lin(h, wg)) * lin(h, wu), wd).float()
        return x + y * (torch.rand_like(y) >= pd) / (1 - pd)

    def head(x, wn, e, tgt, wt):
        lg = lin(model.rms(x, wn, eps), e).float()
        l = F.cross_entropy(lg, tgt, reduction="none")
        return (l * wt).sum() / (wt.sum() + 1e-6), l.detach()

    if not A.cpu:
        pre = torch.compile(pre, dynamic=False)
        post = torch.compile(post, dynamic=False)
        head = torch.compile(head, dynamic=False)

    def attn(q_, k_, v_, size):
        b = q_.shape[0] // size
        q_ = q_.view(b, size, H, hd).transpose(1, 2)
        k_ = k_.view(b, size, K, hd).transpose(1, 2)
        v_ = v_.view(b, size, K, hd).transpose(1, 2)
        if A.cpu:
            k_, v_ = (t.repeat_interleave(H // K, 1) for t in (k_, v_))
            s = (q_.float() @ k_.float().transpose(-1, -2)) / math.sqrt(hd)
            s = s + torch.full((size, size), float("-inf")).triu(1)
            o = (s.softmax(-1) @ v_.float()).to(bf)
        else:
            o = F.scaled_dot_product_attention(q_, k_, v_, is_causal=True, enable_gqa=True)
        return o.transpose(1, 2).reshape(b * size, H * hd)

    none = torch.zeros((A.tokens, 1), device=dev)

    def trunk(ids, size, pd=none):
        cos, sin = tables[size]
        x = F.embedding(ids, w["token_embd"])
        for i in range(c["layers"]):
            p = "blk.%d." % i
            q_, k_, v_ = pre(x, w[p + "attn_norm"], w[p + "attn_q"], w[p + "attn_k"], w[p + "attn_v"], w[p + "attn_q_norm"],
                             w[p + "attn_k_norm"], cos, sin)
            x = post(x, attn(q_, k_, v_, size), pd, w[p + "attn_output"], w[p + "ffn_norm"], w[p + "ffn_gate"], w[p + "ffn_up"],
                     w[p + "ffn_down"])
        return x

    def loss_of(ids, tgt, wt, size, pd=none):
        return head(trunk(ids, size, pd), w["output_norm"], w["token_embd"], tgt, wt)

    # matrices: Muon (momentum, orthogonalised update, scaled as in AdamW); the rest: AdamW
    groups = {}
    for k, v in w.items():
        if v.ndim == 2 and k != "token_embd":
            groups.setdefault(tuple(v.shape), []).append(v)
    mom = {s: torch.zeros((len(l),) + s, device=dev) for s, l in groups.items()}
    adam = torch.optim.AdamW([{"params": [w["token_embd"]], "weight_decay": 0.01},
                              {"params": [v for v in w.values() if v.ndim == 1], "weight_decay": 0.0}],
                             lr=A.lr_emb, betas=(0.9, 0.95), eps=1e-10, **({} if A.cpu else {"fused": True}))

    def newton(g):
        x = g.to(bf)
        t = x.shape[-2] > x.shape[-1]
        if t:
            x = x.mT
        x = x / (x.norm(dim=(-2, -1), keepdim=True) + 1e-7)
        for _ in range(5):
            a = x @ x.mT
            b = -4.7750 * a + 2.0315 * (a @ a)
            x = 3.4445 * x + b @ x
        return x.mT if t else x

    @torch.no_grad()
    def muon(lr):
        for s, l in groups.items():
            g = torch.stack([v.grad for v in l])
            m = mom[s]
            m.lerp_(g, 0.05)
            u = newton(g.lerp(m, 0.95)).float() * (0.2 * math.sqrt(max(s)))
            for v, d in zip(l, u):
                v.mul_(1 - lr * A.wd).sub_(d, alpha=lr)

    if A.init:
        raw = b"".join(open(A.init + ".%d" % i, "rb").read() for i in range(2))
        flat, off = np.frombuffer(raw, np.float16).astype(np.float32), 0
        with torch.no_grad():
            for k, sh in model.shapes(c).items():
                n = int(np.prod(sh))
                w[k].copy_(torch.from_numpy(flat[off:off + n].reshape(sh).copy()))
                off += n
        assert off == len(flat)
        say("started from", A.init)
    spent0 = 0.0
    if os.path.exists(A.state):
        st = torch.load(A.state, map_location=dev)
        with torch.no_grad():
            for k in w:
                w[k].copy_(st["w"][k])
            for s in mom:
                mom[s].copy_(st["mom"][s])
        adam.load_state_dict(st["adam"])
        spent0 = st["spent"]
        say("resumed at", spent0)

    # batches go to the device in a thread
    ready = queue.Queue(4)

    def feed():
        while True:
            size, ids, wt, kinds = q.get()
            a = torch.from_numpy(ids.astype(np.int64))
            b = torch.from_numpy(wt.astype(np.float32))
            if not A.cpu:
                a, b = a.pin_memory().to(dev, non_blocking=True), b.pin_memory().to(dev, non_blocking=True)
            ready.put((size, a, b, kinds))
    threading.Thread(target=feed, daemon=True).start()

    step, seen, start, log, wait = 0, 0, None, [], 0.0
    acc = {"n": 0}
    while True:
        now = time.time()
        spent = spent0 + (now - start if start else 0)
        p = min(1.0, spent / A.total)
        prog.value = p
        if start and now - start > A.seconds or (A.cpu and step >= 4):
            break
        size, ids, wt, kinds = ready.get()
        wait += time.time() - now
        lr = min(1.0, (step + 1 + spent0 * 20) / 150) * (1.0 if p < 0.35 else max(0.0, (1 - p) / 0.65) * 0.99 + 0.01)
        x, y, m = ids[:, :-1].reshape(-1), ids[:, 1:].reshape(-1), wt[:, 1:].reshape(-1)
        kk = torch.from_numpy(kinds.astype(np.int64)).to(dev)[:, None].expand(-1, size).reshape(-1)
        loss, per = loss_of(x, y, m, size, (A.drop * (kk < 3).float())[:, None])
        loss.backward()
        for g in adam.param_groups:
            g["lr"] = A.lr_emb * lr
        muon(A.lr * lr)
        adam.step()
        for v in w.values():
            v.grad = None
        step += 1
        seen += x.numel()
        if step == 3:                                        # compilation over
            if not A.cpu:
                torch.cuda.synchronize()
            start = time.time()
            seen, wait = 0, 0.0
            say("first steps done")
        if step % 50 == 0 or A.cpu:
            with torch.no_grad():
                st_ = (per * (kk < 3)).sum() / (kk < 3).sum().clamp(min=1)
                an = (m == 8).float()
                ans = (per * an).sum() / an.sum().clamp(min=1)
                rec = dict(step=step, t=round(spent, 1), size=size, loss=round(loss.item(), 4), story=round(st_.item(), 4), answer=round(ans.item(), 4), lr=round(lr, 4))
            log.append(rec)
            if step % 250 == 0 or step == 50 or A.cpu:
                say(rec, "tok/s %.0f" % (seen / max(1e-3, time.time() - (start or T0))), "waited %.1f" % wait)
    if not A.cpu:
        torch.cuda.synchronize()
    say("trained", step, "steps", seen, "tokens")
    spent = spent0 + (time.time() - start if start else 0)
    torch.save({"w": {k: v.detach() for k, v in w.items()}, "mom": mom, "adam": adam.state_dict(), "spent": spent}, A.state)
    for pr in procs:
        pr.terminate()
    os.makedirs(A.out, exist_ok=True)
    metrics = {"parameters": n_par, "config": c, "steps": step, "tokens": seen, "seconds": round(spent, 1), "log": log[:: max(1, len(log) // 120)]}
    json.dump(metrics, open(os.path.join(A.out, "train.json"), "w"))

    # ---- results
    W = {k: v.detach().float().cpu().numpy() for k, v in w.items()}
    import ggufw
    flat = np.concatenate([W[k].astype(np.float16).ravel() for k in model.shapes(c)])
    raw = flat.tobytes()
    half = 14 << 20
    open(os.path.join(A.out, "w16.0"), "wb").write(raw[:half])
    open(os.path.join(A.out, "w16.1"), "wb").write(raw[half:])
    say("weights written", len(raw))
    metrics.update(evaluate(torch, w, loss_of, trunk, c, dev))
    json.dump(metrics, open(os.path.join(A.out, "metrics.json"), "w"))
    with torch.no_grad():                                    # the same with Q8_0 weights
        for k in w:
            if w[k].ndim == 2:
                w[k].copy_(torch.from_numpy(ggufw.de_q8_0(ggufw.q8_0(W[k]), W[k].shape)))
    metrics["q8_0"] = evaluate(torch, w, loss_of, trunk, c, dev, quick=True)
    json.dump(metrics, open(os.path.join(A.out, "metrics.json"), "w"), indent=0)
    say("done")
    os._exit(0)


def eval_chunk(a):
    """rows for one evaluation cell: -> list of (ids, answer mask, kind, prompt length)"""
    seed, lo, hi, words, forms, n, mode = a
    import random
    mk = synth.Maker(TOK, [d for d in DATA["valdocs"] if len(d) > 5], seed)
    r = mk.r
    out = []
    enc = TOK.encode
    while len(out) < n:
        doc = synth.Doc(r, words, forms)
        d, facts = mk.document(r.randrange(lo, hi) - 40, doc)
        if not facts:
            continue
        if mode == "absent":
            qq, ans = doc.absent(), synth.NOT_SAID
            if not qq:
                continue
        else:
            s, qs = r.choice(facts)
            qs = [x for x in qs if x[2] == (1 if mode == "reverse" else 0)]
            if not qs:
                continue
            qq, ans, _ = r.choice(qs)
        pre = [TOK.im_start] + enc("user\n" + r.choice(synth.BEFORE)) + d + enc(r.choice(synth.AFTER) + qq) + [TOK.im_end] + enc("\n") + \
            [TOK.im_start] + enc("assistant\n")
        a_ = enc(ans) + [TOK.im_end]
        if not lo <= len(pre) < hi:
            continue
        out.append((pre + a_, len(pre)))
    return out


def evaluate(torch, w, loss_of, trunk, c, dev, quick=False):
    res = {}
    t = time.time()
    size = 2560
    rows = A.tokens // size
    with torch.no_grad():
        a = DATA["val"][0].astype(np.int64)
        n = min((len(a) - 1) // size, 2 if A.cpu else 100)
        tot, cnt, tail = 0.0, 0, 0.0
        for i in range(0, n, rows):
            blk = [a[j * size:j * size + size + 1] for j in range(i, min(i + rows, n))]
            k = len(blk)
            blk += [blk[0]] * (rows - k)
            b = torch.from_numpy(np.stack(blk)).to(dev)
            _, per = loss_of(b[:, :-1].reshape(-1), b[:, 1:].reshape(-1), torch.ones(rows * size, device=dev), size)
            per = per.view(rows, size)[:k]
            tot += per.sum().item()
            tail += per[:, 2048:].sum().item()
            cnt += k
        chars = len(TOK.decode(DATA["val"][0][:n * size].tolist()))
        res["val_story_loss"] = round(tot / (cnt * size), 4)
        res["val_story_loss_after_2048"] = round(tail / (cnt * (size - 2048)), 4)
        res["val_story_bits_per_char"] = round(tot / math.log(2) / chars, 4)
        say("val story loss", res["val_story_loss"], "after 2048:", res["val_story_loss_after_2048"], "bits/char", res["val_story_bits_per_char"])
        bk = [(100, 400), (400, 800), (800, 1200), (1200, 1600), (1600, 1950), (1950, 2440)]
        modes = [("forward", 0, 0, "forward"), ("forward", 1, 0, "forward, new words"), ("forward", 0, 1, "forward, new templates"),
                 ("reverse", 0, 0, "reverse"), ("absent", 0, 0, "absent")]
        per_cell = 8 if A.cpu else 100 if A.smoke else 200 if quick else 400
        jobs, split = [], 4
        for bi, (lo, hi) in enumerate(bk):
            for mi, (mode, words, forms, name) in enumerate(modes):
                for s in range(split):
                    jobs.append((777000 + bi * 1000 + mi * 100 + s, lo, hi, bool(words), bool(forms), per_cell // split, mode))
        with mp.Pool(os.cpu_count()) as pool:
            made = pool.map(eval_chunk, jobs, chunksize=1)
        say("evaluation rows made")
        table, wrong = {}, []
        cells = {}
        for job, rws in zip(jobs, made):
            name = [m[3] for m in modes if m[0] == job[6] and m[1] == job[3] and m[2] == job[4]][0]
            cells.setdefault(((job[1], job[2]), name), []).extend(rws)
        for (b_, name), rws in cells.items():
            ok = 0
            for i in range(0, len(rws), rows):
                part = rws[i:i + rows]
                x = np.full((rows, size), TOK.eot, np.int64)
                for k, (ids, _) in enumerate(part):
                    x[k, :len(ids)] = ids
                h = trunk(torch.from_numpy(x).to(dev).reshape(-1), size).view(rows, size, -1)
                for k, (ids, n0) in enumerate(part):
                    lg = model.rms(h[k, n0 - 1:len(ids) - 1], w["output_norm"], c["eps"]) @ w["token_embd"].T
                    got = lg.argmax(-1).tolist()
                    good = got == ids[n0:]
                    ok += good
                    if not good and sum(x[0] == name for x in wrong) < 25 and not quick:
                        wrong.append([name, n0, TOK.decode(ids[max(0, n0 - 40):n0])[-90:], TOK.decode(ids[n0:]), TOK.decode(got)])
            table.setdefault(name, {})["%d-%d" % b_] = round(ok / len(rws), 4)
        for k, v in table.items():
            say("recall", k, v)
        res["recall_exact_match"] = table
        res["recall_rows_per_cell"] = per_cell
        if not quick:
            res["recall_wrong_examples"] = wrong
            for x in wrong[::9]:
                say("wrong:", x)
    say("evaluated in %.1f s" % (time.time() - t))
    return res


if __name__ == "__main__":
    mp.set_start_method("fork")
    main()
