"""Training throughput as a ratio in one run: `python benchmarks/training.py [--rows N] [--epochs N] [--threads N]`.

The same department rows, the same fresh checkpoint of the multilingual encoder, the same number of epochs: `laya.train.finetune` as a user would call it, and `polyroute.tracks` with its recipe for Laya's layout.
Rows per second of processor time (other work on the machine does not count) with one thread unless told otherwise, and the accuracy of both on rows that neither trained on. One epoch of a few hundred rows is
enough for the speed but teaches neither anything; for the accuracy too, take a thousand rows and four epochs (an hour)."""
import argparse, json, tempfile, time
from dataclasses import replace
from pathlib import Path
import numpy as np
from polyroute import tracks
from polyroute.encoders import checkpoint
from polyroute.items import DEPARTMENT, DataError
from polyroute.laya import Laya
from polyroute.systems import hardware, training_set

def plain(rows, epochs, folder):
    "Laya's own trainer: seconds, checkpoint."
    from laya.train import TrainConfig, finetune
    data = folder/'rows.jsonl'
    data.write_text(''.join(json.dumps(r.to_row(), ensure_ascii=False) + '\n' for r in rows), encoding='utf-8')
    start = time.process_time()
    finetune(str(data), str(checkpoint('multilingual', 1)), str(folder/'plain'), TrainConfig(epochs=epochs, shuffle_options=('choice',), seed=1), device='cpu')
    return time.process_time() - start, folder/'plain'

def ours(rows, epochs, folder):
    "The trainer of the tracks: seconds, checkpoint."
    run = tracks.Run('bench', 'Bench', 'multilingual', 'train', 'B', 'none')
    start = time.process_time()
    try: made = tracks.train(run, 1, replace(tracks.RECIPES['laya'], epochs=epochs), folder/'ours', rows)
    except DataError: made = None     # it learned nothing, and such a model is not written
    return time.process_time() - start, made

def main():
    a = argparse.ArgumentParser(description=__doc__.split('\n')[0])
    a.add_argument('--rows', type=int, default=320)
    a.add_argument('--epochs', type=int, default=2)
    a.add_argument('--threads', type=int, default=1, help='of torch')
    a = a.parse_args()
    import torch
    torch.set_num_threads(a.threads)
    every = training_set('train_ml').department()
    order = np.random.default_rng(0).permutation(len(every))
    rows, other = every.select(order[:a.rows]), every.select(order[a.rows:a.rows + 200])
    print(f'{hardware()}, {torch.get_num_threads()} threads; {a.rows} rows, {a.epochs} epochs')
    checkpoint('multilingual', 1)
    with tempfile.TemporaryDirectory() as d:
        took = {name: f(rows, a.epochs, Path(d)) for name, f in (('laya.train.finetune', plain), ('polyroute.tracks', ours))}
        for name, (seconds, made) in took.items():
            quality = 'too few steps to learn anything' if made is None else f'{100*(Laya(made, device="cpu").predict(other.states, DEPARTMENT).argmax(1) == other.gold).mean():.1f}% of {len(other)} rows that neither saw'
            print(f'  {name:22} {a.rows*a.epochs/seconds:6.2f} rows per processor second, with start and calibration; {took["laya.train.finetune"][0]/seconds:.2f} times the plain trainer; {quality}')

if __name__ == '__main__': main()
