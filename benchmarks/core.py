"""Speed of the core, as ratios in one run: `python benchmarks/core.py`.

Import: `polyroute.metrics` against pandas alone, each in a new process.
Rank stability: 13 systems x 322 items x 2,000 resamples against the plain Python loop a user would write, on the same resamples, with identical numbers."""
import subprocess, sys, time
import numpy as np
from polyroute.significance import rank_stability

def seconds(
    f,             # called without arguments
    repeats: int,
) -> float:        # shortest wall time
    "Return the shortest time of some calls: what else the machine does only adds."
    took = []
    for _ in range(repeats):
        start = time.perf_counter()
        f()
        took.append(time.perf_counter() - start)
    return min(took)

def plain_ranks(
    hit: np.ndarray,   # (n, s) bool
    n_boot: int,
    seed: int = 0,
) -> tuple[list, list]:  # mean rank, and share of the resamples in each place
    "Return rank stability as a loop over resamples, systems and items."
    rows, s, rng = hit.tolist(), hit.shape[1], np.random.default_rng(seed)
    total, held = [0.]*s, [[0.]*s for _ in range(s)]
    for _ in range(n_boot):
        drawn = [rows[i] for i in rng.integers(0, len(rows), len(rows)).tolist()]
        right = [sum(row[j] for row in drawn) for j in range(s)]
        for j in range(s):
            better, equal = sum(r > right[j] for r in right), sum(r == right[j] for r in right)
            total[j] += better + (equal + 1)/2
            for place in range(better, better + equal): held[j][place] += 1/equal
    return [t/n_boot for t in total], [[h/n_boot for h in row] for row in held]

def main():
    run = lambda code: seconds(lambda: subprocess.run([sys.executable, '-c', code], check=True), 7)
    start, pandas, metrics = run('pass'), run('import pandas'), run('import polyroute.metrics')
    print(f'import: polyroute.metrics {1000*(metrics - start):.0f} ms, pandas alone {1000*(pandas - start):.0f} ms, ratio {(metrics - start)/(pandas - start):.2f} (interpreter start of {1000*start:.0f} ms not counted)')
    hit = np.random.default_rng(0).random((322, 13)) < np.linspace(.97, .61, 13)
    ours = rank_stability(hit, 2000)
    mean, share = plain_ranks(hit, 2000)
    assert np.allclose(ours.mean, mean, rtol=0, atol=1e-9) and np.allclose(ours.share, share, rtol=0, atol=1e-9), 'the two disagree'
    fast, slow = seconds(lambda: rank_stability(hit, 2000), 7), seconds(lambda: plain_ranks(hit, 2000), 3)
    print(f'rank stability, 13 systems x 322 items x 2,000 resamples: {1000*fast:.0f} ms, plain loop {1000*slow:.0f} ms, ratio {slow/fast:.0f}, identical numbers')

if __name__ == '__main__': main()
