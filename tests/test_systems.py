"Running a system: its output is checked, and no interruption changes what is written in the end."
import json
import os
import random
import resource
import signal
import subprocess
import sys
import textwrap
import time
import numpy as np
import pytest
from hypothesis import given, strategies as st
from conftest import Toy, even, fast, lines_of, toy_data, tree
from polyroute import items, predictions, runs, systems
from polyroute.items import DEPARTMENT, DataError, Item, Question, read_items, write_jsonl
from polyroute.predictions import find_predictions, read_predictions
from polyroute.systems import Card, System, UnsupportedQuestion, agreement, cards, check_output, chunks, evaluate, get, latency, names, offline, read_card

K2 = Question('date', 'noul', '?', (('false', ''), ('true', '')))
K7 = Question('letter', 'choice', '?', tuple((c, '') for c in 'gfedcba'))
S5 = Question('urgency', 'score', '?', tuple((str(i), f'level {i}') for i in range(5)))

@pytest.fixture
def data(tmp_path): return toy_data(tmp_path/'toy.jsonl', 80)

def written(root, slug='toy', split='toy'): return root/'systems'/slug/f'{split}.jsonl'


# cards

@pytest.mark.parametrize('slug, track, words', [('', 'A', 'a-z'), ('Big', 'A', 'a-z'), ('a/b', 'A', 'a-z'), ('a b', 'A', 'a-z'), ('..', 'A', 'a-z'), ('é', 'A', 'a-z'), ('a', 'D', 'A, B, C, ref')])
def test_bad_cards(slug, track, words):
    with pytest.raises(ValueError, match=words): Card(slug, 'n', track, 'w', 'e')

def test_version_follows_recipe_and_training_rows(home):
    card = lambda **kw: Card('a', 'n', 'A', 'w', 'e', **kw).version
    assert card() == card() and card(recipe={'x': 1}) != card() and card(recipe={'x': 1, 'y': 2}) == card(recipe={'y': 2, 'x': 1})
    before = card(training='ml_test')
    toy_data(home/'data'/'ml_test.jsonl', 5)
    assert card(training='ml_test') != before and card(params='5M') == card()

def test_cards_survive(data, tmp_path):
    toy = Toy('a-b', 'B', recipe={'x': [1, 2]}, seeds=[0, 1], params='1M')
    evaluate(toy, data, tmp_path/'o')
    assert read_card('a-b', tmp_path/'o') == toy.card and read_card('none', tmp_path/'o') is None
    evaluate(Toy('z', 'A'), data, tmp_path/'o'); evaluate(Toy('a', 'ref'), data, tmp_path/'o')
    assert [c.slug for c in cards(tmp_path/'o')] == ['z', 'a-b', 'a'] and cards(tmp_path/'nothing') == []


# registry

def test_the_offline_systems_are_registered():
    assert {'majority', 'tfidf-base', 'tfidf-withheld', 'tfidf-all', 'e5-zeroshot', 'e5-logreg-base', 'e5-logreg-withheld', 'e5-logreg-all', 'sparrow-nano'} <= set(names())
    assert set(offline()) <= set(names())

def test_get(monkeypatch, tmp_path):
    (tmp_path/'toy_module_1.py').write_text('from conftest import Toy\nmade = Toy()\ndef make(): return Toy("other")\nclass Class(Toy): pass\nnothing = None\nnumber = 5\n')
    monkeypatch.syspath_prepend(tmp_path)
    assert get('toy_module_1:made').card.slug == 'toy' and get('toy_module_1:make').card.slug == 'other' and get('toy_module_1:Class').card.slug == 'toy'
    assert isinstance(get('toy_module_1:made'), System) and isinstance(get('majority'), System)

@pytest.mark.parametrize('name', ['no-such-system', 'no_such_module_x:system', 'json:no_such', 'json:__name__', 'json:dumps_', 'collections:OrderedDict', ':x', 'json:'])
def test_get_says_what_is_wrong(name):
    with pytest.raises(DataError) as e: get(name)
    assert name.split(':')[0] in str(e.value)


# what a system may return

BAD = dict(nan=lambda p: p*np.nan, negative=lambda p: p - [[1.], [0], [0]], seven_tenths=lambda p: p*.7, infinite=lambda p: p/0, few_rows=lambda p: p[:-1], many_columns=lambda p: np.hstack([p, p*0]),
           flat=lambda p: p.ravel(), none=lambda p: None, ragged=lambda p: [[1, 0, 0], [1, 0, 0], [1, 0]], words=lambda p: [['a', 'b', 'c']]*3, labels=lambda p: ['billing']*3, above_one=lambda p: [[1.0011, 0, 0]]*3)

@pytest.mark.parametrize('what', BAD)
@pytest.mark.filterwarnings('ignore:divide by zero', 'ignore:invalid value')
def test_bad_output_is_refused_with_the_id(tmp_path, what):
    data = toy_data(tmp_path/'toy.jsonl', 3)
    with pytest.raises(DataError) as e: evaluate(Toy(predict=lambda s, q: BAD[what](even(s, q))), data, tmp_path/'o')
    assert e.value.id == 'i000' and 'toy' in str(e.value)
    assert not written(tmp_path/'o').exists() and not (tmp_path/'o'/'systems'/'toy'/'system.json').exists()

def test_the_faulty_row_is_named(tmp_path):
    def predict(s, q):
        p = even(s, q); p[[t.endswith('text 37') for t in s]] = [.5, .6, .7]
        return p
    with pytest.raises(DataError, match='probabilities') as e: evaluate(Toy(predict=predict), toy_data(tmp_path/'toy.jsonl', 60), tmp_path/'o')
    assert e.value.id == 'i037'

@fast
@given(st.lists(st.lists(st.integers(0, 50), min_size=7, max_size=7).filter(any), min_size=1, max_size=4), st.floats(.998, 1.002), st.booleans())
def test_what_is_accepted_can_be_read_back(tmp_path_factory, w, scale, large):
    "A row that evaluate takes must never make a file that its own reader refuses."
    folder = tmp_path_factory.mktemp('s')
    data = toy_data(folder/'toy.jsonl', len(w), K7)
    p = np.array(w, dtype=float); p = p/p.sum(axis=1, keepdims=True)*scale
    old, predictions.LARGE = predictions.LARGE, 10 if large else predictions.LARGE
    try:
        try: check_output(p, data.ids, K7, 'toy')
        except DataError: return
        evaluate(Toy(predict=lambda s, q: p), data, folder/'o')
        assert read_predictions(find_predictions(written(folder/'o')), data).probs == pytest.approx(p, abs=1.2e-3)
    finally: predictions.LARGE = old

def test_lists_and_integers_are_fine(tmp_path):
    data = toy_data(tmp_path/'toy.jsonl', 3)
    assert evaluate(Toy(predict=lambda s, q: [[1, 0, 0]]*len(s)), data, tmp_path/'o') == 'computed'
    assert read_predictions(written(tmp_path/'o'), data).probs.tolist() == [[1, 0, 0]]*3


# evaluate

def test_outcomes(data, tmp_path):
    toy, out = Toy(), tmp_path/'o'
    steps = []
    assert evaluate(toy, data, out, progress=steps.append) == 'computed' and sum(steps) == 80 and toy.calls == [32, 32, 16]
    first = tree(out)
    assert sorted(first) == ['systems/toy/runs.json', 'systems/toy/system.json', 'systems/toy/toy.jsonl']
    assert evaluate(toy, data, out) == 'kept' and toy.calls == [32, 32, 16]
    assert evaluate(toy, data, out, fresh=True) == 'computed' and len(toy.calls) == 6 and tree(out) == first
    p = read_predictions(written(out), data)
    assert p.probs == pytest.approx(even(data.states, DEPARTMENT), abs=1e-6) and p.header.version == toy.card.version

def test_a_new_version_or_new_data_is_run_again(data, tmp_path):
    evaluate(Toy(), data, tmp_path/'o')
    assert evaluate(Toy(recipe={'x': 1}), data, tmp_path/'o') == 'computed'
    other = toy_data(tmp_path/'toy.jsonl', 81)
    assert evaluate(Toy(recipe={'x': 1}), other, tmp_path/'o') == 'computed' and len(read_predictions(written(tmp_path/'o'), other)) == 81
    assert [(r['version'] == Toy(recipe={'x': 1}).card.version, r['items']) for r in json.loads((tmp_path/'o/systems/toy/runs.json').read_text())['toy']] == [(False, 80), (True, 80), (True, 81)]

def test_seeds_have_files_of_their_own(data, tmp_path):
    toy = Toy(seeds=[0, 1])
    assert [evaluate(toy, data, tmp_path/'o', seed=s) for s in (None, 1)] == ['computed']*2       # the declared seed is the first
    assert [evaluate(toy, data, tmp_path/'o', seed=s) for s in (None, 0, 1)] == ['kept']*3
    assert [read_predictions(tmp_path/'o/systems/toy'/f, data).header.seed for f in ('seed-0/toy.jsonl', 'seed-1/toy.jsonl')] == [0, 1]
    assert not (tmp_path/'o/systems/toy/toy.jsonl').exists()

def several(path):
    "Four questions with 2, 3, 5 and 7 options, in turn."
    qs = [K2, DEPARTMENT, S5, K7]
    return read_items(write_jsonl(path, (Item(f'{i:02d}', f't{i}', qs[i % 4], qs[i % 4].options[i % 2]).to_row() for i in range(150))))

def test_several_questions(tmp_path):
    data, seen = several(tmp_path/'toy.jsonl'), []
    def predict(s, q):
        seen.append((q.name, len(s)))
        return even(s, q)
    assert evaluate(Toy(predict=predict), data, tmp_path/'o') == 'computed'
    assert seen == [(q.name, n) for q, sizes in ((K2, (32, 6)), (DEPARTMENT, (32, 6)), (S5, (32, 5)), (K7, (32, 5))) for n in sizes]
    p = read_predictions(written(tmp_path/'o'), data)
    for n, i in enumerate(data): assert p.probs[n, :len(i.question.options)] == pytest.approx(even([i.state], i.question)[0], abs=1e-6)
    assert [l['id'] for l in lines_of(written(tmp_path/'o'))[1:]] == data.ids.tolist()        # in the order of the data

@pytest.mark.parametrize('large', [False, True])
@pytest.mark.parametrize('second', [(('b', ''), ('a', '')), (('a', ''), ('b', ''), ('c', ''))], ids=['another order', 'another option'])
def test_one_question_name_with_two_option_lists(tmp_path, monkeypatch, second, large):
    "Rows may ask 'q' with different options: either that is refused before anything is run, or it is written and read right."
    if large: monkeypatch.setattr(predictions, 'LARGE', 10)
    qs = [Question('q', 'choice', '?', (('a', ''), ('b', ''))), Question('q', 'choice', '?', second)]
    data = read_items(write_jsonl(tmp_path/'toy.jsonl', [Item(f'{i}', f't{i}', q, 'a').to_row() for i, q in enumerate(qs)]))
    toy = Toy(predict=lambda s, q: np.array([[.9 if o == 'a' else .1/(len(q.options) - 1) for o in q.options]]*len(s)))
    try: evaluate(toy, data, tmp_path/'o')
    except DataError:
        assert toy.calls == []
        return
    p = read_predictions(find_predictions(written(tmp_path/'o')), data)
    assert p.probs[0, qs[0].options.index('a')] == pytest.approx(.9) and p.probs[1, qs[1].options.index('a')] == pytest.approx(.9)

def test_unsupported_questions_give_no_predictions(tmp_path):
    data = several(tmp_path/'toy.jsonl')
    def predict(s, q):
        if q == K7: raise UnsupportedQuestion('seven is too many')
        return even(s, q)
    assert evaluate(Toy(predict=predict), data, tmp_path/'o') == 'n/a'
    assert sorted(tree(tmp_path/'o')) == ['systems/toy/runs.json', 'systems/toy/system.json']
    assert json.loads((tmp_path/'o/systems/toy/runs.json').read_text())['toy'][0]['unsupported'] == 'seven is too many'

def test_odd_texts_reach_the_system_unchanged(tmp_path):
    texts, got = ['', ' ', 'a\u2028b', 'שלום', '👩\u200d💻', 'e\u0301', 'a\r\n', 'x'*10**6, '\u202e', 'a\0b'], []
    data = read_items(write_jsonl(tmp_path/'toy.jsonl', (Item(f'{i}', t, DEPARTMENT, 'other').to_row() for i, t in enumerate(texts))))
    def predict(s, q): got.extend(s); return even(s, q)
    evaluate(Toy(predict=predict), data, tmp_path/'o')
    assert got == texts

def test_progress_counts_resumed_items(data, tmp_path):
    def stop(s, q):
        if 'text 64' in s[0]: raise KeyboardInterrupt
        return even(s, q)
    with pytest.raises(KeyboardInterrupt): evaluate(Toy(predict=stop), data, tmp_path/'o')
    steps, toy = [], Toy()
    assert evaluate(toy, data, tmp_path/'o', progress=steps.append) == 'resumed' and steps == [64, 16] and toy.calls == [16]

def test_fresh_means_everything_is_computed(data, tmp_path):
    "What an interrupted run left may come from other package versions: --fresh must not build on it."
    def stop(s, q):
        if 'text 64' in s[0]: raise KeyboardInterrupt
        return even(s, q)[:, ::-1]
    with pytest.raises(KeyboardInterrupt): evaluate(Toy(predict=stop), data, tmp_path/'o')
    toy = Toy()
    assert evaluate(toy, data, tmp_path/'o', fresh=True) == 'computed' and sum(toy.calls) == 80
    assert read_predictions(written(tmp_path/'o'), data).probs == pytest.approx(even(data.states, DEPARTMENT), abs=1e-6)

def test_what_another_version_left_is_not_resumed(data, tmp_path):
    def stop(s, q):
        if 'text 64' in s[0]: raise KeyboardInterrupt
        return even(s, q)
    with pytest.raises(KeyboardInterrupt): evaluate(Toy(predict=stop, recipe={'x': 1}), data, tmp_path/'o')
    toy = Toy(recipe={'x': 2})
    assert evaluate(toy, data, tmp_path/'o') == 'computed' and sum(toy.calls) == 80

def test_outputs_folder(tmp_path, monkeypatch, home):
    monkeypatch.chdir(home)
    monkeypatch.setenv('POLYROUTE_OUTPUTS', str(tmp_path/'x'/'_outputs'))       # whatever its name, it was asked for
    evaluate(Toy(), 'ml_test')
    assert (tmp_path/'x'/'_outputs'/'systems'/'toy'/'ml_test.jsonl').is_file()

def test_an_installed_package_is_never_written_to(tmp_path, monkeypatch):
    import polyroute
    monkeypatch.delenv('POLYROUTE_OUTPUTS', raising=False)
    monkeypatch.setattr(polyroute, '__file__', str(tmp_path/'site'/'polyroute'/'__init__.py'))
    monkeypatch.chdir(tmp_path)
    evaluate(Toy(), toy_data(tmp_path/'toy.jsonl', 3))
    assert (tmp_path/'outputs'/'systems'/'toy'/'toy.jsonl').is_file() and not (tmp_path/'site').exists()


# interruptions

ODD_IDS = lambda i: f'é한👩\u200d💻{i}'
ODD_QUESTION = Question('où', 'choice', '?', (('ça', ''), ('한국', ''), ('لا', '')))

@pytest.fixture
def odd(tmp_path, monkeypatch):
    "Six items in chunks of two, whose ids and options are of several bytes a letter."
    monkeypatch.setattr(systems, 'CHUNK', 2)
    monkeypatch.setattr(chunks, '__defaults__', (2,))
    data = toy_data(tmp_path/'toy.jsonl', 6, ODD_QUESTION, id=ODD_IDS)
    evaluate(Toy(), data, tmp_path/'undisturbed')
    return data

def in_a_child(job):
    "Run a job in a forked process; return its wait status."
    pid = os.fork()
    if pid == 0:
        try: job()
        except BaseException: os._exit(7)
        os._exit(0)
    return os.waitpid(pid, 0)[1]

def kill_at(line, job):
    "Run a job that is killed with SIGKILL at the n-th line it executes in the package's own writing code."
    left = [line]
    def trace(frame, event, arg):
        if frame.f_code.co_filename not in (systems.__file__, items.__file__, predictions.__file__): return None
        if event == 'line':
            left[0] -= 1
            if left[0] < 0: os.kill(os.getpid(), signal.SIGKILL)
        return trace
    def traced():
        sys.settrace(trace)
        job()
    return in_a_child(traced)

HIDDEN = lambda name: name.rsplit('/', 1)[-1].startswith('.')

@pytest.mark.skipif(not hasattr(os, 'fork'), reason='needs fork')
def test_killed_at_any_line_and_run_again(odd, tmp_path, monkeypatch):
    want, wrong, left, step = tree(tmp_path/'undisturbed'), {}, set(), 0
    monkeypatch.setattr(os, 'fsync', lambda f: None)                 # a killed process loses nothing that it wrote
    for line in range(0, 10**6, 8):
        out = tmp_path/f'killed-{line}'
        if not os.WIFSIGNALED(kill_at(line, lambda: evaluate(Toy(), odd, out))): break
        evaluate(Toy(), odd, out)
        got = tree(out)
        left |= {n for n in got if HIDDEN(n)}
        got = {n: b for n, b in got.items() if not HIDDEN(n)}
        if got != want: wrong[line] = sorted(set(got) ^ set(want)) or 'other bytes'
        step += 1
    assert step > 25
    assert not wrong, f'{len(wrong)} of {step} moments: {wrong}'

@pytest.mark.skipif(not hasattr(os, 'fork'), reason='needs fork')
def test_killed_while_a_file_is_replaced_leaves_no_litter(odd, tmp_path, monkeypatch):
    def die(*a): os.kill(os.getpid(), signal.SIGKILL)
    def job():
        items.os.replace = die
        evaluate(Toy(), odd, tmp_path/'o')
    assert os.WIFSIGNALED(in_a_child(job))
    evaluate(Toy(), odd, tmp_path/'o')
    assert tree(tmp_path/'o') == tree(tmp_path/'undisturbed')

def test_cut_at_any_byte_and_run_again(odd, tmp_path, monkeypatch):
    "The bytes that reach the disk may end anywhere, also within a letter."
    whole = {}
    real = os.fsync
    def keep(f):
        part = written(tmp_path/'full').with_name('toy.jsonl.partial')
        if part.exists(): whole['bytes'] = part.read_bytes()
    monkeypatch.setattr(os, 'fsync', keep)
    evaluate(Toy(), odd, tmp_path/'full')
    assert tree(tmp_path/'full') == tree(tmp_path/'undisturbed') and whole['bytes'].count(b'\n') == 7
    failed = []
    for cut in range(0, len(whole['bytes']) + 1, 2):
        part = written(tmp_path/f'cut-{cut}').with_name('toy.jsonl.partial')
        part.parent.mkdir(parents=True)
        part.write_bytes(whole['bytes'][:cut])
        try:
            evaluate(Toy(), odd, tmp_path/f'cut-{cut}')
            if tree(tmp_path/f'cut-{cut}') != tree(tmp_path/'undisturbed'): failed.append((cut, 'other files'))
        except Exception as e: failed.append((cut, repr(e)))
    assert not failed, f'{len(failed)} of {len(whole["bytes"])//2} cuts, e.g. {failed[0]}'

@pytest.mark.parametrize('rubbish', [b'\x00'*500, b'[]\n', b'5\n[]\n', b'\xff\xfe', b'{"id": 1}\n'], ids=repr)
def test_rubbish_in_the_partial_file_is_thrown_away(odd, tmp_path, rubbish):
    for keep_header in (False, True):
        out = tmp_path/str(keep_header)
        part = written(out).with_name('toy.jsonl.partial')
        part.parent.mkdir(parents=True)
        part.write_bytes(written(tmp_path/'undisturbed').read_bytes().split(b'\n')[0]*keep_header + b'\n'*keep_header + rubbish)
        evaluate(Toy(), odd, out)
        assert tree(out) == tree(tmp_path/'undisturbed')

@pytest.mark.skipif(not hasattr(os, 'fork'), reason='needs fork')
def test_a_full_disk_leaves_nothing_half_written(odd, tmp_path):
    "A real limit on the size of files: writes fail in the middle of a line, as on a full disk."
    size = written(tmp_path/'undisturbed').stat().st_size
    failed = 0
    for limit in range(1, size, max(1, size//25)):
        out = tmp_path/f'full-{limit}'
        def job():
            resource.setrlimit(resource.RLIMIT_FSIZE, (limit, resource.getrlimit(resource.RLIMIT_FSIZE)[1]))
            evaluate(Toy(), odd, out)
        status = in_a_child(job)
        failed += os.waitstatus_to_exitcode(status) == 7
        assert not written(out).exists() and not any(HIDDEN(n) for n in tree(out) if (out).exists())
        evaluate(Toy(), odd, out)
        assert tree(out) == tree(tmp_path/'undisturbed'), limit
    assert failed > 15

@pytest.mark.parametrize('name', ['fsync', 'replace'])
def test_a_failing_disk_leaves_the_old_predictions(odd, tmp_path, monkeypatch, name):
    evaluate(Toy(), odd, tmp_path/'o')
    before = tree(tmp_path/'o')
    def full(*a): raise OSError(28, 'No space left on device')
    with monkeypatch.context() as mp:
        mp.setattr(items.os, name, full)
        with pytest.raises(OSError, match='No space'): evaluate(Toy(recipe={'x': 1}), odd, tmp_path/'o')
    after = tree(tmp_path/'o')
    assert {n: b for n, b in after.items() if not n.endswith('.partial')} == before
    evaluate(Toy(recipe={'x': 1}), odd, tmp_path/'o')
    evaluate(Toy(recipe={'x': 1}), odd, tmp_path/'other')
    assert written(tmp_path/'o').read_bytes() == written(tmp_path/'other').read_bytes()

def test_two_at_once_in_one_process(odd, tmp_path):
    def predict(s, q):
        with pytest.raises(DataError, match='another process'): evaluate(Toy(), odd, tmp_path/'o')
        return even(s, q)
    assert evaluate(Toy(predict=predict), odd, tmp_path/'o') == 'computed'
    assert tree(tmp_path/'o') == tree(tmp_path/'undisturbed')

def test_the_other_run_finishes_between_opening_and_locking(odd, tmp_path, monkeypatch):
    "The partial file may be gone by the time it is locked."
    import fcntl
    real, first = fcntl.flock, []
    def flock(f, how):
        if not first:
            first.append(1)
            evaluate(Toy(), odd, tmp_path/'o')
        return real(f, how)
    monkeypatch.setattr(fcntl, 'flock', flock)
    evaluate(Toy(), odd, tmp_path/'o')
    assert tree(tmp_path/'o') == tree(tmp_path/'undisturbed')

OTHER = """
import sys
from pathlib import Path
from conftest import Toy
from polyroute.items import read_items
from polyroute.systems import evaluate
Path(sys.argv[2], 'started').touch()
evaluate(Toy(), read_items(sys.argv[1]), sys.argv[2])
"""

def test_two_splits_finishing_together_are_both_logged(tmp_path, monkeypatch):
    "Two runs of one system on two splits are allowed side by side; neither may lose the other's entry."
    a, b, out = toy_data(tmp_path/'aa.jsonl', 3), toy_data(tmp_path/'bb.jsonl', 3), tmp_path/'o'
    real, other = runs.write_atomic, []
    def slow(path, text):
        if path.name == 'runs.json' and not other:       # the other process comes between our reading and our writing, unless it has to wait for us
            other.append(subprocess.Popen([sys.executable, '-c', OTHER, b.path, out], cwd=os.path.dirname(__file__)))
            while not (out/'started').exists(): assert other[0].poll() in (None, 0); time.sleep(.01)
            try: other[0].wait(1)
            except subprocess.TimeoutExpired: pass
        return real(path, text)
    monkeypatch.setattr(runs, 'write_atomic', slow)
    evaluate(Toy(), a, out)
    assert other[0].wait() == 0 and sorted(json.loads((out/'systems/toy/runs.json').read_text())) == ['aa', 'bb']


# real processes

MODULE = '''
    import hashlib, os, time
    import numpy as np
    from pathlib import Path
    from polyroute.systems import Card

    class Slow:
        card = Card('slow', 'Slow', 'ref', 'A slow toy.', 'none', recipe={'family': 'slow'})

        def predict(self, states, question):
            time.sleep(float(os.environ.get('SLOW', 0)))
            if 'MARK' in os.environ:
                Path(os.environ['MARK'], 'running').touch()
                while not Path(os.environ['MARK'], 'go').exists(): time.sleep(.01)
            w = np.array([[1 + hashlib.sha256(f'{o}{t}'.encode()).digest()[0] for o in question.options] for t in states], dtype=float)
            return w / w.sum(axis=1, keepdims=True)

    system = Slow()
'''

def command(folder, out, **env):
    (folder/'slow_module.py').write_text(textwrap.dedent(MODULE))
    return subprocess.Popen([sys.executable, '-c', 'from polyroute.cli import main; main()', 'evaluate', 'slow_module:system', '--out', str(out)], cwd=folder, text=True,
                            stdout=subprocess.PIPE, stderr=subprocess.PIPE, env={**os.environ, **env})

def test_a_killed_command_goes_on_where_it_stopped(home):
    start = time.monotonic()
    p = command(home, home/'undisturbed', SLOW='.05')
    assert p.communicate()[0].split() == ['slow_module:system', 'ml_test:', 'computed', 'slow_module:system', 'mix_test:', 'computed'] and p.returncode == 0
    usual, rng = time.monotonic() - start, random.Random(4)
    for out in (home/'a', home/'b'):
        for _ in range(4):
            p = command(home, out, SLOW='.05')
            try: p.wait(rng.uniform(.4, 1)*usual)
            except subprocess.TimeoutExpired: p.kill()
            p.communicate()
        p = command(home, out)
        said, err = p.communicate()
        assert p.returncode == 0, err
        assert {n: b for n, b in tree(out).items() if not HIDDEN(n)} == tree(home/'undisturbed'), said

def test_two_commands_at_once(home):
    first = command(home, home/'o', MARK=str(home))
    while not (home/'running').exists():
        assert first.poll() is None, first.communicate()
        time.sleep(.02)
    second = command(home, home/'o')
    out, err = second.communicate()
    assert second.returncode == 1 and 'another process' in err and 'ml_test.jsonl.partial' in err and 'Traceback' not in err
    (home/'go').touch()
    assert first.communicate()[1].count('Traceback') == 0 and first.returncode == 0
    assert {'systems/slow/ml_test.jsonl', 'systems/slow/mix_test.jsonl'} < set(tree(home/'o'))


# agreement and latency

def test_agreement(data, tmp_path):
    evaluate(Toy(), data, tmp_path/'a'); evaluate(Toy(), data, tmp_path/'b')
    a, b = (read_predictions(written(tmp_path/x), data) for x in 'ab')
    assert agreement(a, b) == dict(identical=True, largest=0, decisions=0)
    b.probs = b.probs.copy(); b.probs[0] = np.roll(b.probs[0], 1)
    found = agreement(a, b)
    assert not found['identical'] and found['decisions'] == 1 and found['largest'] > 0
    other = toy_data(tmp_path/'other.jsonl', 3)
    evaluate(Toy(), other, tmp_path/'a')
    with pytest.raises(DataError, match='different data'): agreement(a, read_predictions(written(tmp_path/'a', split='other'), other))

@pytest.mark.parametrize('n', [1, 10, 16, 40, 80])
def test_latency_says_how_many_items_it_timed(tmp_path, n):
    found = latency(Toy(), toy_data(tmp_path/'toy.jsonl', n), batch=16, items=32)
    assert found['ms_per_item'] >= 0 and found['batch'] == 16 and 1 <= found['items'] <= n


# the systems that are part of the package

def test_majority(home):
    write_jsonl(home/'data'/'train.jsonl', (i.to_row() for i in [Item(f'{n}', 't', DEPARTMENT, o) for n, o in enumerate(['billing']*5 + ['technical']*3 + ['other']*2)]))
    m = get('majority')
    assert m.predict(['', 'x'], DEPARTMENT).tolist() == [[.5, .3, .2]]*2 and m.card.training_rows == 10 and m.predict([], DEPARTMENT).shape == (0, 3)
    with pytest.raises(UnsupportedQuestion): m.predict(['x'], K7)

def test_ngrams_need_no_language(home):
    words = dict(billing='refund invoice', technical='crash error', other='hello job')
    write_jsonl(home/'data'/'train.jsonl', (i.to_row() for i in [Item(f'{n}', f'{words[o]} {n}', DEPARTMENT, o) for n in range(9) for o in [DEPARTMENT.options[n % 3]]]))
    s = get('tfidf-base')
    p = s.predict(['refund', 'crash', 'job', '', '👩\u200d💻', 'x'*10_000], DEPARTMENT)
    assert p.shape == (6, 3) and p[:3].argmax(axis=1).tolist() == [0, 1, 2] and p.sum(axis=1) == pytest.approx(np.ones(6))
    assert (check_output(p, [str(i) for i in range(6)], DEPARTMENT, 's') == p).all()
    with pytest.raises(UnsupportedQuestion): s.predict(['x'], K7)

def test_option_texts_and_temperature():
    from polyroute.embedding import fit_temperature, option_texts, softmax
    from polyroute.metrics import nll
    assert option_texts(DEPARTMENT)[0] == 'billing: invoices, payments, refunds' and option_texts(K7) == list('gfedcba') and option_texts(S5)[1] == 'level 1' and option_texts(K2) == ['? No', '? Yes']
    x = np.random.default_rng(0).normal(size=(50, 3)); g = x.argmax(axis=1); g[::3] = (g[::3] + 1) % 3
    best = fit_temperature(x, g)
    assert all(nll(softmax(x/best), g) <= nll(softmax(x/t), g) + 1e-9 for t in np.geomspace(.01, 50, 200))
    assert softmax(np.array([[1e4, 0, -1e4]])).tolist() == [[1, 0, 0]]

def test_sparrow_answers_every_type_of_question():
    pytest.importorskip('sparrow_decider')
    s = get('sparrow-nano')
    for q in (DEPARTMENT, K2, K7, S5):
        texts = ['Where is my refund?', '', 'أين نقودي', 'e\u0301👩\u200d💻']
        p = check_output(s.predict(texts, q), list('abcd'), q, 'sparrow-nano')
        assert (p == np.vstack([s.predict([t], q) for t in texts])).all()       # no text changes another's answer

def test_embedding_classifier_does_not_depend_on_the_order_of_its_sums():
    "The optimum is one; a fit that stops before it moves with the order of the rows, as it would with the number of threads."
    from sklearn.model_selection import StratifiedKFold
    from polyroute.embedding import RECIPE, search_logreg
    rng = np.random.default_rng(0)
    x = rng.normal(size=(600, 96)).astype(np.float32)
    x /= np.linalg.norm(x, axis=1, keepdims=True)
    y = np.array(list('abc'))[(x @ rng.normal(size=(96, 3)) + rng.normal(size=(600, 3))*.3).argmax(1)]
    new, order, folds = rng.normal(size=(50, 96))/10, rng.permutation(600), StratifiedKFold(3, shuffle=True, random_state=0)
    a, b = (search_logreg(x[o], y[o], folds, RECIPE | dict(C=[100])).predict_proba(new) for o in (np.arange(600), order))
    assert np.abs(a - b).max() < 1e-6

def test_a_fold_that_cannot_be_scored_stops_the_search():
    "With groups that are the labels, no fold can say which regularisation is best."
    from polyroute.embedding import search_logreg
    from sklearn.model_selection import LeaveOneGroupOut
    x, y = np.random.default_rng(0).normal(size=(30, 4)), np.repeat(['a', 'b', 'c'], 10)
    with pytest.raises(ValueError, match='one label'): search_logreg(x, y, LeaveOneGroupOut(), groups=y)
    assert set(search_logreg(x, y, LeaveOneGroupOut(), groups=np.tile(range(5), 6)).classes_) == {'a', 'b', 'c'}

# Files that are not as they were written

@pytest.mark.parametrize('large', [False, True])
@pytest.mark.parametrize('spoil', [lambda b: b[:len(b)//2], lambda b: b'', lambda b: b'\x00'*50, lambda b: b'[]\n', lambda b: b'{"schema": 1}\n', lambda b: b.replace(b'0.', b'7.')], ids=['half', 'empty', 'zeros', 'a list', 'no header', 'other numbers'])
def test_damaged_predictions_are_not_kept(data, tmp_path, monkeypatch, spoil, large):
    if large: monkeypatch.setattr(predictions, 'LARGE', 10)
    toy = Toy()
    evaluate(toy, data, tmp_path/'o')
    path = find_predictions(written(tmp_path/'o'))
    whole = path.read_bytes()
    if (bad := spoil(whole)) == whole: return                  # a compressed file has no such bytes
    path.write_bytes(bad)
    with pytest.raises(DataError, match='--fresh') as e: evaluate(toy, data, tmp_path/'o')
    assert str(path) in str(e.value) and path.read_bytes() == bad
    assert evaluate(toy, data, tmp_path/'o', fresh=True) == 'computed' and path.read_bytes() == whole

DAMAGED = ['', '{"slug"', '[]', 'null', '['*100_000, '{"a": 5}', '{"a": [5]}', '{"a": [{}]}', '{"slug": "Big", "name": "n", "track": "A", "what": "", "exposure": ""}']

@pytest.mark.parametrize('text', DAMAGED, ids=lambda t: t[:12])
def test_a_damaged_card_is_named(data, tmp_path, text):
    toy, root = Toy(), tmp_path/'o'
    evaluate(toy, data, root)
    path = root/'systems'/'toy'/'system.json'
    path.write_text(text)
    with pytest.raises(DataError, match='system.json: the file is damaged'): cards(root)
    if text.startswith('{"') and text.endswith('}'): assert evaluate(toy, data, root) == 'kept' and read_card('toy', root) == toy.card      # as any card that is not this one
    else:
        with pytest.raises(DataError, match='system.json: the file is damaged'): evaluate(toy, data, root)

@pytest.mark.parametrize('text', DAMAGED, ids=lambda t: t[:12])
def test_a_damaged_log_is_named(data, tmp_path, text):
    toy, root = Toy(), tmp_path/'o'
    evaluate(toy, data, root)
    (root/'systems'/'toy'/'runs.json').write_text(text)
    for use in (lambda: systems.was_run(toy.card, root=root), lambda: systems.why_absent(toy.card, 'other', root), lambda: evaluate(toy, data, root)):
        with pytest.raises(DataError, match='runs.json: the file is damaged'): use()

def test_a_damaged_latency_is_named(data, tmp_path):
    path = systems.write_latency(Toy(), data, tmp_path/'o')
    for text in ('', '[]', '{}', '{"ms_per_item": "fast"}'):
        path.write_text(text)
        with pytest.raises(DataError, match='latency.json.*damaged'): systems.read_latency('toy', tmp_path/'o')


# a module of one's own

@pytest.mark.parametrize('code, line, words', [('def f(:\n', 1, 'SyntaxError'), ('x = 1\n  y = 2\n', 2, 'IndentationError'), ('from polyroute.adapters import from_function\n\nmy_system = from_function(len, "My System")\n', 3, 'a-z, 0-9 and hyphens'),
                                               ('import no_such_package_z\n', 1, 'no_such_package_z'), ('def f():\n    return {}["k"]\nf()\n', 3, 'KeyError'), ('from json import no_such\n', 1, 'ImportError')])
def test_a_module_that_cannot_be_imported_is_a_message(tmp_path, monkeypatch, code, line, words):
    (tmp_path/'own_module_q.py').write_text(code)
    monkeypatch.syspath_prepend(tmp_path); monkeypatch.delitem(sys.modules, 'own_module_q', raising=False)
    with pytest.raises(DataError, match='own_module_q cannot be imported') as e: get('own_module_q:my_system')
    assert (e.value.path, e.value.line) == (str(tmp_path/'own_module_q.py'), line) and words in str(e.value)
