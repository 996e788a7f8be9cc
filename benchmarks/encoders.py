"""Inference of a Laya checkpoint, as ratios in one run: `python benchmarks/encoders.py [--encoder NAME] [--texts N] [--threads N] [--bf16]`.

Items per second of `polyroute.laya` against a loop of `Agent.predict` and against `Agent.predict_batch`, on the same texts of ml_test and the same weights, with the same answers; and
milliseconds per item at batch 16. It takes a GPU where there is one. The paper gives 1.2 to 2.0 ms an item on an RTX 4090 for encoders of 322M to 421M parameters."""
import argparse, time
import numpy as np
from polyroute.encoders import checkpoint
from polyroute.items import DEPARTMENT, load
from polyroute.laya import Laya, fast_bf16
from polyroute.systems import chunks, hardware

ASK = {DEPARTMENT.name: DEPARTMENT.to_json()}

def probabilities(results): return np.array([[r['answers'][DEPARTMENT.name]['probabilities'][o] for o in DEPARTMENT.options] for r in results])

def timed(
    f,              # called without arguments
    repeats: int,
) -> tuple:         # shortest wall time, what it returned
    "Return the shortest time of some calls: what else the machine does only adds."
    took = []
    for _ in range(repeats):
        start = time.perf_counter()
        got = f()
        took.append(time.perf_counter() - start)
    return min(took), got

def main():
    a = argparse.ArgumentParser(description=__doc__.split('\n')[0])
    a.add_argument('--encoder', default='multilingual', help='whatever polyroute.encoders.checkpoint takes')
    a.add_argument('--texts', type=int, default=96)
    a.add_argument('--threads', type=int, help='of torch on a processor')
    a.add_argument('--repeats', type=int, default=3)
    a.add_argument('--bf16', action='store_true', help='compute in bfloat16 on a processor')
    a.add_argument('--device', help='cpu, cuda …; a GPU if there is one')
    a = a.parse_args()
    import torch
    if a.threads: torch.set_num_threads(a.threads)
    system = Laya(checkpoint(a.encoder), batch=32, threads=a.threads, bf16=a.bf16, device=a.device)
    data = load('ml_test')
    data = data.select(np.linspace(0, len(data) - 1, min(a.texts, len(data))).astype(int))     # of every language
    agent, texts = system.agent, data.states
    tokens = sum(len(t) for t in system.tokens(texts))/len(texts) + len(system._head(DEPARTMENT).ids) + 1
    on_gpu = agent.device.type != 'cpu'
    print(f'{a.encoder}, {torch.cuda.get_device_name() if on_gpu else hardware()}, {"" if on_gpu else f"{torch.get_num_threads()} threads, "}'
          f'{agent.dtype if on_gpu else "bfloat16" if a.bf16 else "float32"}; {len(texts)} texts, {tokens:.0f} tokens an item with the question; bfloat16 in hardware: {fast_bf16()}')
    ways = {'loop of Agent.predict': lambda: probabilities([agent.predict(t, ASK) for t in texts]),
            'Agent.predict_batch, 32': lambda: probabilities(agent.predict_batch(texts, ASK, batch_size=32)),
            'polyroute.laya, chunks of 32': lambda: np.concatenate([system.predict([data[i].state for i in ix], q) for q, ix in chunks(data)])}
    for f in ways.values(): f()          # warm-up
    took = {name: timed(f, a.repeats) for name, f in ways.items()}
    ours, p = took['polyroute.laya, chunks of 32']
    for name, (seconds, other) in took.items():
        print(f'  {name:30} {len(texts)/seconds:8.1f} items/s  {1000*seconds/len(texts):7.2f} ms an item  ours is {seconds/ours:.2f} times as fast  largest difference {np.abs(other - p).max():.1e}')
    system.batch, batches = 16, [texts[i:i + 16] for i in range(0, len(texts), 16)]
    each = [timed(lambda: system.predict(b, DEPARTMENT), a.repeats)[0]/len(b) for b in batches]
    print(f'  batch 16: median {1000*np.median(each):.2f} ms an item')

if __name__ == '__main__': main()
