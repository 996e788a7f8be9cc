"Small data sets, toy systems and a toy board, all in a temporary folder."
import hashlib, json, shutil
import numpy as np
import pytest
from hypothesis import settings
from polyroute.items import DEPARTMENT, TWELVE, VARIETIES, Item, read_items, write_jsonl
from polyroute.systems import Card, evaluate

fast = settings(max_examples=40, deadline=None)
few = settings(max_examples=20, deadline=None)


def gold_of(text):
    "The answer that the toy texts carry in their first character."
    return int(text[0])


def toy_items(n=12, question=DEPARTMENT, meta=lambda i: {'language': TWELVE[i % 12]}, id=lambda i: f'i{i:03d}', state=lambda i: f'text {i}'):
    "n items whose text begins with the position of the gold option."
    k = len(question.options)
    return [Item(id(i), f'{i % k} {state(i)}', question, question.options[i % k], None, meta(i)) for i in range(n)]


def toy_data(path, *args, **kw):
    "The toy items as a data file, read back."
    return read_items(write_jsonl(path, (i.to_row() for i in toy_items(*args, **kw))))


def even(texts, question):
    "Whole numbers over their sum, from the text alone: no batch, order or machine can change them."
    w = np.array([[1 + hashlib.sha256(f'{o}{t}'.encode('utf-8', 'surrogatepass')).digest()[0] for o in question.options] for t in texts], dtype=float).reshape(len(texts), -1)
    return w / w.sum(axis=1, keepdims=True)


class Toy:
    "A system made of a function, or one that is right on a fixed share of the toy texts."
    def __init__(self, slug='toy', track='ref', predict=even, **card):
        self.card = Card(slug, card.pop('name', slug.upper()), track, 'A toy.', 'none', **card)
        self.f, self.calls = predict, []

    def predict(self, states, question):
        self.calls.append(len(states))
        return self.f(states, question)


def right_on(share, salt):
    "Predict the toy texts' gold option on about this share of them, with a confidence between 0.5 and 1."
    def predict(texts, question):
        k, out = len(question.options), []
        for t in texts:
            a, b = hashlib.sha256(f'{salt}{t}'.encode()).digest()[:2]
            row = np.full(k, (1 - (.5 + b/512)) / (k - 1))
            row[(gold_of(t) + (a >= share*256)) % k] = .5 + b/512
            out.append(row)
        return np.array(out)
    return predict


SYSTEMS = [('best', 'C', .97), ('second', 'B', .95), ('middle', 'A', .75), ('near-middle', 'C', .72), ('low', 'ref', .4)]


@pytest.fixture(scope='session')
def toys(tmp_path_factory):
    "Two splits in one folder and five systems' predictions on them in another, made once."
    folder = tmp_path_factory.mktemp('toys')
    splits = [toy_data(folder/'data'/'ml_test.jsonl', 240),
              toy_data(folder/'data'/'mix_test.jsonl', 60, meta=lambda i: {'variety': list(VARIETIES)[i % 3]}, id=lambda i: f'm{i:03d}')]
    for slug, track, share in SYSTEMS:
        for data in splits: evaluate(Toy(slug, track, right_on(share, slug)), data, folder/'out')
    return folder


@pytest.fixture
def home(toys, tmp_path, monkeypatch):
    "A data folder with two splits and an empty outputs folder, to which POLYROUTE_DATA and POLYROUTE_OUTPUTS point."
    shutil.copytree(toys/'data', tmp_path/'data')
    (tmp_path/'out').mkdir()
    monkeypatch.setenv('POLYROUTE_DATA', str(tmp_path/'data'))
    monkeypatch.setenv('POLYROUTE_OUTPUTS', str(tmp_path/'out'))
    return tmp_path


@pytest.fixture
def board_home(home, toys):
    "The same with five systems run on both splits."
    shutil.copytree(toys/'out', home/'out', dirs_exist_ok=True)
    return home


def selection(home, slug):
    "Name the system that was chosen on held-out training rows."
    path = home/'out'/'tracks'/'selection.json'
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps({slug: {'views': {'native': [9, 10]}}, 'nobody': {'views': {'native': [1, 10]}}}))


def tree(folder):
    "Every file below a folder with its bytes."
    return {p.relative_to(folder).as_posix(): p.read_bytes() for p in sorted(folder.rglob('*')) if p.is_file()}


def lines_of(path): return [json.loads(l) for l in path.read_text(encoding='utf-8').split('\n')[:-1]]


def run_command(*args, code=0):
    "What the command line prints; a fault is an exit code and a message, never a traceback."
    from click.testing import CliRunner
    from polyroute.cli import main
    r = CliRunner().invoke(main, [str(a) for a in args])
    assert not (r.exception and not isinstance(r.exception, SystemExit)), repr(r.exception)
    assert r.exit_code == code, r.output
    return r.output
