"""Speed and scale of the exact leakage audit: `python benchmarks/leakage.py [speed|scale|minhash|all]`.

speed    360 + 180 test texts against 4,000 training rows: Python sets in a double loop (sets prebuilt), scikit-learn's CountVectorizer and sparse product, this
         library; the three must give identical maxima. Times are the best of several runs, ratios come from one run of this script. Compilation is not counted.
scale    one pass over 10,000, 100,000 and 1,000,000 rows (4,000 real ones, perturbed), each in a process of its own: seconds, peak memory (Linux), the exponent of the growth.
minhash  datasketch's MinHash LSH as the reference for speed, and what it misses at each threshold.
"""
import json, math, re, subprocess, sys, tempfile, time
from pathlib import Path
import numpy as np
from polyroute.items import load
from polyroute.leakage import Index, audit, chunked, nearest, ngrams

def data(rows=4000):
    "Return the native and code-mixed test texts and the first 4,000 training rows (the last 28 stand twice)."
    pool = load('train_ml').states
    return load('ml_test').states + load('mix_test').states, (pool + pool)[:rows]

def best(f, times):
    f()  # warm up: compilation, caches
    out = []
    for _ in range(times):
        start = time.perf_counter(); f(); out.append(time.perf_counter() - start)
    return min(out)

def ours(test, pool, method='numba'):
    return nearest(Index(test, method=method), chunked(enumerate(pool)))

def sets(A, B):
    out = []
    for a in A:
        s = [len(a & b) / len(a | b) for b in B]
        out.append(max(s))
    return out

def sklearn(test, pool):
    from sklearn.feature_extraction.text import CountVectorizer
    X = CountVectorizer(analyzer='char', ngram_range=(5, 5), binary=True, lowercase=False, dtype=np.int32).fit_transform(test + pool)
    size = np.asarray(X.sum(1)).ravel()
    both = (X[:len(test)] @ X[len(test):].T).tocoo()
    out = np.zeros(len(test))
    np.maximum.at(out, both.row, both.data / (size[both.row] + size[len(test) + both.col] - both.data))
    return out.tolist()

def speed():
    test, pool = data()
    A, B = [[ngrams(t) for t in texts] for texts in (test, pool)]
    got = ours(test, pool).similarity.tolist()
    start = time.perf_counter()
    want = sets(A, B)
    seconds = {'Python sets': time.perf_counter() - start}
    seconds['scikit-learn'] = best(lambda: sklearn(test, pool), 3)
    seconds['numpy index (no numba)'] = best(lambda: ours(test, pool, 'numpy'), 3)
    seconds['polyroute'] = best(lambda: ours(test, pool), 15)
    assert got == want == sklearn(test, pool) == ours(test, pool, 'numpy').similarity.tolist(), 'the maxima differ'
    print(f'{len(test)} texts against {len(pool):,} rows, identical maxima')
    for k, s in seconds.items(): print(f'  {k:24} {s:8.3f} s   {s/seconds["polyroute"]:7.1f} x the time of polyroute')
    for k, least in (('Python sets', 250), ('scikit-learn', 20)):
        print(f'  target: at least {least} times as fast as {k}: {"met" if seconds[k] >= least*seconds["polyroute"] else "NOT MET"}')

def perturbed(texts, rows, seed):
    "Yield rows made from real texts by replacing up to a third of the characters by others of the same text, and a number at the end."
    rng = np.random.default_rng(seed)
    for i in range(rows):
        t = list(texts[i % len(texts)])
        for at, to in rng.integers(0, len(t), (rng.integers(0, len(t)//6 + 1), 2)): t[at], t[to] = t[to], t[at]
        yield f'{"".join(t)} {i}'

def peak_mib():
    "Return this process's largest resident set; getrusage would count the parent's before the start too."
    return int(re.search(r'VmHWM:\s*(\d+) kB', Path('/proc/self/status').read_text())[1])/1024

def one_pass(path):
    "Audit a pool file and print seconds, rows and this process's peak memory."
    test, pool = data()
    ours(pool[:10], pool[:10])  # load the compiled code: a second that has nothing to do with the rows
    start = time.perf_counter()
    a = audit(test, path)
    seconds = time.perf_counter() - start
    print(json.dumps(dict(rows=a.near.rows, seconds=seconds, mib=peak_mib(), max=a.summary()['max'])))

def scale(sizes=(10_000, 100_000, 1_000_000)):
    _, pool = data()
    ours(pool[:10], pool[:10])  # compile once, before the processes that are measured
    found = []
    print(f'{360 + 180} texts against perturbed rows, one pass, a process each')
    with tempfile.TemporaryDirectory() as d:
        for n in sizes:
            path = Path(d)/'pool.jsonl'
            with open(path, 'w', encoding='utf-8') as f: f.writelines(json.dumps({'text': t}, ensure_ascii=False) + '\n' for t in perturbed(pool, n, 0))
            r = json.loads(subprocess.run([sys.executable, __file__, 'one_pass', str(path)], check=True, capture_output=True, text=True).stdout)
            found.append(r)
            print(f'  {r["rows"]:>9,} rows ({path.stat().st_size/2**20:6.1f} MiB)  {r["seconds"]:7.2f} s  {r["rows"]/r["seconds"]:9,.0f} rows/s  peak {r["mib"]:5.0f} MiB', flush=True)
    for a, b in zip(found, found[1:]): print(f'  from {a["rows"]:,} to {b["rows"]:,} rows: exponent {math.log(b["seconds"]/a["seconds"])/math.log(b["rows"]/a["rows"]):.2f}')
    print(f'  exponent over all: {np.polyfit(*np.log([[r[k] for r in found] for k in ("rows", "seconds")]), 1)[0]:.2f} (1 is linear)')
    print(f'  target: under 1 GiB: {"met" if found[-1]["mib"] < 1024 else "NOT MET"}')

def minhash(perms=128):
    from datasketch import MinHash, MinHashLSH
    test, pool = data()
    pool = pool[:len(pool) - len(test)] + [t.rsplit(' ', 1)[0] for t in perturbed(test, len(test), 1)]  # every test text has a relative in the pool
    exact = ours(test, pool).similarity
    seconds = best(lambda: ours(test, pool), 15)
    def signature(t):
        m = MinHash(num_perm=perms, seed=1)
        m.update_batch([g.encode('utf-32-le', 'surrogatepass') for g in ngrams(t)])
        return m
    print(f'MinHash LSH ({perms} permutations), {len(test)} texts against {len(pool):,} rows of which {len(test)} are perturbed test texts; exact audit: {seconds:.3f} s')
    for cut in (.3, .5, .7):
        start = time.perf_counter()
        lsh = MinHashLSH(threshold=cut, num_perm=perms)
        for i, t in enumerate(pool): lsh.insert(i, signature(t))
        found = np.array([len(lsh.query(signature(t))) > 0 for t in test])
        s = time.perf_counter() - start
        there = exact >= cut
        print(f'  threshold {cut}: {s:.2f} s ({s/seconds:.0f} x the time of the exact audit); of {there.sum()} texts at or above it {(there & ~found).sum()} missed; {(found & ~there).sum()} below it reported')

if __name__ == '__main__':
    what = sys.argv[1] if len(sys.argv) > 1 else 'all'
    if what == 'one_pass': one_pass(sys.argv[2])
    else:
        for f in (speed, minhash, scale): what in (f.__name__, 'all') and f()
